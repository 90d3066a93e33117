"""Puts a closed loop of requests on the engine, from the host itself, and times every token."""

from __future__ import annotations

import gc
import hashlib
import os
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Optional

from infra.agent import facts, folders, lease, processes, state
from infra.agent.clock import Lag, percentile
from infra.agent.jobs import Job
from infra.agent.load import Load, Sample
from infra.agent.refusal import Refusal
from infra.agent.streams import Fault
from infra.agent.users import Users

PROGRESS_S = 0.25
ENOUGH = "enough"
"""A file of this name in the job's folder ends the load: who wanted it has what it needs."""


class Driver:
    """Keeps exactly ``concurrency`` requests in flight while there are any left."""

    def __init__(self, folder: str, where: str, load: Load) -> None:
        self.folder = folder
        self.where = where
        self.load = load
        self.users = Users(load, self._count)
        self.completed = self.failed = self.tokens = 0
        self.stopped: Optional[Fault] = None
        self.zero = 0.0
        self.lag = Lag()
        self.digest = hashlib.sha256()
        self.size = 0
        self.engine = (state.read(folder) or {}).get("engine")
        self.ended: deque[Sample] = deque()
        self._looking: Optional[Future[Optional[Fault]]] = None
        self._look_at = 0.0
        self._gpus: Optional[Future[dict[str, Any]]] = None
        path = os.path.join(where, "samples.jsonl")
        self.samples = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def run(self) -> dict[str, Any]:
        """Drives the load to its end, or until a reason to stop."""
        cpu = time.process_time()
        gc.freeze()
        self.zero = time.monotonic()
        self.lag.start(self.zero)
        # Threads look around: a slow disk or tool must not show up as a slow engine.
        looker = ThreadPoolExecutor(2)
        try:
            self.users.start()
            self._attend(looker)
            self.lag.stop(time.monotonic())
            while self.ended:
                self._write_down()
        finally:
            self.users.close()
            looker.shutdown()
            os.close(self.samples)
        self._look_around(self._progress())
        result = self._result(time.monotonic() - self.zero, time.process_time() - cpu)
        return {**result, "gpus": None if self._gpus is None else self._gpus.result()}

    def _attend(self, looker: ThreadPoolExecutor) -> None:
        """Lets the users work; with each tick looks at the time and for reasons to stop.

        Rows are written while the engine is silent, one by one: requests of one length end
        together, and writing them all at once would hold up the next ones by tens of
        milliseconds.
        """
        while self.users.working:
            wait_s = 0.0 if self.ended else max(0.0, self.lag.due - time.monotonic())
            busy = self.users.attend(wait_s)
            now = time.monotonic()
            if self._gpus is None and self.load.look_at_gpus and self._all_sent:
                self._gpus = looker.submit(facts.look)
            if now >= self.lag.due:
                self.lag.tick(now)
                self.users.expire(now)
                self._look(looker, now)
            if self.stopped is not None:
                self.users.stop(self.stopped)
            elif self.ended and not busy:
                self._write_down()

    @property
    def _all_sent(self) -> bool:
        """Whether the last request is under way.

        That is the hottest moment of a load, and the one at which a look at the GPUs disturbs
        least: all slots are taken still, and no later request can be held up.
        """
        return len(self.users.delays) == len(self.load.requests)

    def _look(self, looker: ThreadPoolExecutor, now: float) -> None:
        """Heeds what a look around has found; sends for the next one when it is time."""
        if self._looking is not None and self._looking.done():
            self.stopped = self.stopped or self._looking.result()
            self._looking = None
        if self._looking is None and now >= self._look_at:
            self._look_at = now + PROGRESS_S
            self._looking = looker.submit(self._look_around, self._progress())

    def _progress(self) -> dict[str, Any]:
        active = self.users.active()
        return {
            "done": self.completed + self.failed,
            "failed": self.failed,
            "in_flight": len(active),
            "tokens": self.tokens + sum(sample.tokens for sample in active),
            "seconds": time.monotonic() - self.zero,
        }

    def _look_around(self, progress: dict[str, Any]) -> Optional[Fault]:
        """Shows the progress; returns a reason to stop."""
        path = os.path.join(self.where, "progress.json")
        folders.write_json(path, progress, durable=False)
        if progress["seconds"] > self.load.deadline_s:
            return Fault("deadline", f"not done after {self.load.deadline_s} s")
        if lease.expired(self.folder):
            return Fault("lease_expired", "nobody renewed the trial's lease")
        if self.engine is not None and not processes.alive(self.engine):
            return Fault("engine_gone", f"engine {self.engine['pid']} is gone")
        if os.path.exists(os.path.join(self.where, ENOUGH)):
            return Fault("enough", "asked to end")
        return None

    def _count(self, sample: Sample, done: float, fault: Optional[Fault]) -> None:
        """Counts an ended request; its record is written when there is time."""
        sample.end(done, fault)
        self.ended.append(sample)
        self.tokens += sample.tokens
        if sample.fault is None:
            self.completed += 1
            return
        self.failed += 1
        limit = self.load.abort_after_failures
        if self.stopped is None and limit is not None and self.failed >= limit:
            self.stopped = Fault("too_many_failures", f"{self.failed} requests failed")
            self.users.finish()

    def _write_down(self) -> None:
        """Writes the record of the request that ended first."""
        data = folders.dumps(self.ended.popleft().line(self.zero)).encode() + b"\n"
        try:
            folders.write_all(self.samples, data)
        except OSError as problem:
            if problem.errno in folders.DISK_FULL:
                raise Refusal("disk_full", "no space left for the samples") from problem
            raise
        self.digest.update(data)
        self.size += len(data)

    def _result(self, seconds: float, cpu_s: float) -> dict[str, Any]:
        stopped = self.stopped
        return {
            "ok": stopped is None,
            "error": stopped.kind if stopped else None,
            "message": stopped.message if stopped else None,
            "completed": self.completed,
            "failed": self.failed,
            "unsent": len(self.load.requests) - self.completed - self.failed,
            "seconds": seconds,
            "client": {
                **self.lag.summary(),
                "send_delay_p99_s": percentile(self.users.delays, 0.99),
                "cpu_s": cpu_s,
                "cpu_share": cpu_s / seconds if seconds else None,
            },
            "started_monotonic": self.zero,
            "samples_sha256": self.digest.hexdigest(),
            "samples_bytes": self.size,
        }


def drive(job: Job) -> dict[str, Any]:
    """Runs the load of a drive job; the samples lie in samples.jsonl beside its result."""
    return Driver(job.folder, job.where, Load.read(job.request)).run()
