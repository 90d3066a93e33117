"""Has the engine record some steps of its work, while a load runs, and keeps what the trace says."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from typing import Any, Callable, Optional

from infra.agent import folders, jobs, lease, processes, sieve, state, web
from infra.agent.drive import ENOUGH
from infra.agent.jobs import Job
from infra.agent.refusal import Refusal

KEPT = "profile.jsonl.gz"
TRACES = "traces"
_LOOK_S = 0.05
_START_S = 120.0  # CUPTI is loaded at the first start, on every rank
_STOP_S = 120.0
_SETTLED_S = 1.0
_SUFFIX = ".trace.json.gz"
# "1764470000.1-TP-0.trace.json.gz", with -DP-0, -PP-0, -EP-0 where there are several of those, and
# a prefix or a stage where one was asked for (SGLang 0.5.9 to 0.5.23).
_FIRST = re.compile(r"-TP-0(-(DP|PP|EP)-0)*(-[A-Z]+)?\.trace\.json\.gz\Z")


def record(job: Job) -> dict[str, Any]:
    """Records steps under a load that runs already; ends that load when they are recorded.

    The request says ``port`` and ``headers_path``; ``start``, the body of /start_profile without
    its folder; ``load``, the name of the drive job; ``in_flight`` and ``tokens``, how far that
    must be before anything is recorded; ``ranks``, how many traces there will be; ``timeout_s``;
    ``keep_trace``.

    Raises:
        Refusal: ``load_over``, ``profiler_refused``, ``no_trace``, ``bad_trace``, ``engine_gone``,
            ``lease_expired``, ``deadline``.
    """
    return _Recording(job).run()


class _Recording:
    """One recording."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.asked = job.request
        self.until = time.monotonic() + float(self.asked["timeout_s"])
        self.load = jobs.place(job.folder, self.asked["load"])
        self.traces = os.path.join(job.where, TRACES)
        self.engine = (state.read(job.folder) or {}).get("engine")

    def run(self) -> dict[str, Any]:
        folders.own_folder(self.traces)
        try:
            self._wait("the load", self._loaded)
            began = time.monotonic()
            body = {**self.asked["start"], "output_dir": self.traces}
            self._ask("/start_profile", _START_S, body)
            found, whole = self._recorded()
            done = time.monotonic()
            sieved = self._sieved(found)
            return {
                "files": found,
                "whole_load": whole,
                "recording_s": done - began,
                "reading_s": time.monotonic() - done,
                **sieved._asdict(),
            }
        finally:
            self._release_load()
            if not self.asked.get("keep_trace"):
                shutil.rmtree(self.traces, ignore_errors=True)

    def _loaded(self) -> bool:
        """Whether the load is as large as it should be and past its first tokens."""
        progress = folders.read_object(os.path.join(self.load, "progress.json")) or {}
        if self._load_over():
            raise Refusal("load_over", "the load had ended before anything was recorded")
        enough = progress.get("in_flight", 0) >= self.asked["in_flight"]
        return bool(enough and progress.get("tokens", 0) >= self.asked["tokens"])

    def _load_over(self) -> bool:
        return os.path.exists(os.path.join(self.load, "result.json"))

    def _recorded(self) -> tuple[dict[str, int], bool]:
        """Waits for the traces of all ranks, by file name with size; whether the load lasted.

        An engine that has no work takes no steps and would record for ever: when the load is over
        before there is a trace, recording is ended.
        """
        whole = True
        while True:
            found = self._settled_files()
            if found:
                return found, whole
            if whole and self._load_over():
                whole = False
                # It refuses where recording has just ended by itself; then there will be a trace.
                with contextlib.suppress(Refusal):
                    self._ask("/stop_profile", _STOP_S)
            self._look("a trace")

    def _settled_files(self) -> dict[str, int]:
        """The traces, once there are enough and they grow no more; nothing before that."""
        sizes = self._sizes()
        if len(sizes) < self.asked["ranks"]:
            return {}
        since = time.monotonic()
        while time.monotonic() - since < _SETTLED_S:
            self._look("a whole trace")
            now = self._sizes()
            if now != sizes:
                sizes, since = now, time.monotonic()
        return sizes if all(sizes.values()) else {}

    def _sizes(self) -> dict[str, int]:
        found = {}
        for entry in os.scandir(self.traces):
            if entry.name.endswith(_SUFFIX):
                found[entry.name] = entry.stat().st_size
        return dict(sorted(found.items()))

    def _sieved(self, found: dict[str, int]) -> sieve.Sieved:
        """What rank 0's trace says; read again while it is still being written."""
        first = next((name for name in found if _FIRST.search(name)), None)
        if first is None:
            raise Refusal("no_trace", f"none is of the first rank: {', '.join(found)}")
        path, target = os.path.join(self.traces, first), os.path.join(self.job.where, KEPT)
        while True:
            size = os.path.getsize(path)
            sieved = sieve.sieve(path, target)
            if sieved.whole or os.path.getsize(path) == size:
                return sieved
            self._look("a whole trace")

    def _ask(self, path: str, within_s: float, body: Optional[dict[str, Any]] = None) -> None:
        """One request to the engine, which answers when all ranks have done as asked."""
        asked = {"port": self.asked["port"], "method": "POST", "path": path}
        if self.asked.get("headers_path") is not None:
            asked["headers_path"] = self.asked["headers_path"]
        if body is not None:
            asked["body"] = folders.dumps(body)
        left = max(1.0, min(within_s, self.until - time.monotonic()))
        answer = web.ask(asked, left)
        if answer["status"] != 200:
            said = f"{path}: {answer['status']} {answer['body'].strip()[:300]}"
            raise Refusal("profiler_refused", said)

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        while not condition():
            self._look(what)

    def _look(self, what: str) -> None:
        """Lets a moment pass; finds reasons to give up."""
        if time.monotonic() > self.until:
            there = ", ".join(f"{name} ({size})" for name, size in self._sizes().items())
            raise Refusal("deadline", f"waited in vain for {what}; traces: {there or 'none'}")
        if self.engine is not None and not processes.alive(self.engine):
            raise Refusal("engine_gone", f"engine {self.engine['pid']} is gone")
        if lease.expired(self.job.folder):
            raise Refusal("lease_expired", "nobody renewed the trial's lease")
        time.sleep(_LOOK_S)

    def _release_load(self) -> None:
        """Ends the load, whatever became of the recording."""
        if os.path.isdir(self.load):
            folders.write_bytes(os.path.join(self.load, ENOUGH), b"", durable=False)
