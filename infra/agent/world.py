"""The processes of one setting that time all-reduce together, and what is asked of them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from typing import Any, NamedTuple

from infra.agent import folders, lease
from infra.agent.jobs import Job
from infra.agent.refusal import Refusal

TAIL = 4000
LOOK_S = 0.25
ROUND_S = 60.0


class Broken(Exception):
    """A setting came to an end before its measurement did."""

    def __init__(self, error: str, message: str) -> None:
        self.error = error
        self.message = message
        super().__init__(message)


class Plan(NamedTuple):
    """What is asked."""

    world: int
    """Processes of each setting, one a GPU where there are GPUs."""
    dtype: str
    elements: list[int]
    """Numbers in each message."""
    levels: list[dict[str, Any]]
    """``name`` and ``env`` of each setting."""
    passes: int
    """How often every setting is started anew."""
    rounds: int
    """Measurements of every size in each pass."""
    together: int
    """Settings whose processes live at the same time; one measures, the others wait."""
    size_s: float
    """Time that one size of one round should take."""
    level_s: float
    """For the settings that are started together to get ready."""
    unset: list[str]
    """Variables that the processes do not inherit from this one."""

    @classmethod
    def read(cls, asked: dict[str, Any]) -> Plan:
        """Reads the request; ``bad_request`` if it is wrong."""
        try:
            plan = cls(
                world=int(asked["world"]),
                dtype=str(asked["dtype"]),
                elements=[int(count) for count in asked["elements"]],
                levels=[
                    {"name": str(one["name"]), "env": {k: str(v) for k, v in one["env"].items()}}
                    for one in asked["levels"]
                ],
                passes=int(asked["passes"]),
                rounds=int(asked["rounds"]),
                together=max(1, int(asked["together"])),
                size_s=float(asked["size_s"]),
                level_s=float(asked["level_s"]),
                unset=[str(name) for name in asked.get("unset") or []],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise Refusal("bad_request", f"collectives: {type(fault).__name__} {fault}") from fault
        if plan.world < 1 or not plan.elements or min(plan.elements) < 1:
            raise Refusal("bad_request", "collectives: a world and messages of one number at least")
        return plan


class World:
    """The processes of one setting in one pass."""

    def __init__(self, job: Job, plan: Plan, level: dict[str, Any], turn: int) -> None:
        self.name = level["name"]
        self.repeats = [1] * len(plan.elements)
        self.ready_by = time.monotonic() + plan.level_s
        self._job = job
        self._plan = plan
        self._where = os.path.join(job.where, f"{turn}-{plan.levels.index(level)}")
        folders.own_folder(self._where)
        self._pending: dict[int, bytes] = {}
        self._answers: list[int] = []
        self._ranks: list[subprocess.Popen[bytes]] = []
        try:
            for number in range(plan.world):
                self._spawn(number, level["env"])
        except OSError as fault:
            self.end()
            raise Broken("not_started", str(fault)) from fault

    def _spawn(self, number: int, env: dict[str, str]) -> None:
        ours, theirs = os.pipe()
        request = {
            "rank": number,
            "world": self._plan.world,
            "dtype": self._plan.dtype,
            "elements": self._plan.elements,
            "store": os.path.join(self._where, "store"),
            "answers": theirs,
            "timeout_s": self._plan.level_s,
        }
        kept = {k: v for k, v in os.environ.items() if k not in self._plan.unset}
        debug = {"NCCL_DEBUG_FILE": self._path(number, "nccl")}
        log = os.open(self._path(number, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._ranks.append(
                subprocess.Popen(
                    [sys.executable, os.path.abspath(sys.argv[0]), "rank", json.dumps(request)],
                    cwd=self._where,
                    env={**kept, **debug, **env},
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(theirs,),
                )
            )
        finally:
            os.close(log)
            os.close(theirs)
            self._answers.append(ours)
            self._pending[ours] = b""

    def _path(self, number: int, kind: str) -> str:
        return os.path.join(self._where, f"rank{number}.{kind}")

    def ready(self) -> dict[str, Any]:
        """What rank 0 is, once all are ready."""
        return self._hear(self.ready_by - time.monotonic())[0]

    def round(self) -> list[float]:
        """One measurement of every size: seconds a call, those of the slowest rank."""
        order = json.dumps({"repeats": self.repeats}).encode() + b"\n"
        for rank in self._ranks:
            try:
                assert rank.stdin is not None
                rank.stdin.write(order)
                rank.stdin.flush()
            except OSError as fault:
                raise Broken("ended", f"a process is gone: {fault}") from fault
        told = self._hear(ROUND_S)
        return [max(one["seconds"][i] for one in told) for i in range(len(self.repeats))]

    def _hear(self, within_s: float) -> list[dict[str, Any]]:
        """One answer of every rank."""
        until = time.monotonic() + within_s
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) < len(self._answers):
            waiting = [fd for fd in self._answers if fd not in answers]
            for fd in select.select(waiting, [], [], LOOK_S)[0]:
                data = os.read(fd, 1 << 16)
                if not data:
                    raise Broken("ended", f"rank {self._answers.index(fd)} ended without a word")
                self._pending[fd] += data
                line, found, rest = self._pending[fd].partition(b"\n")
                if found:
                    self._pending[fd] = rest
                    answers[fd] = json.loads(line)
                    if "error" in answers[fd]:
                        raise Broken(answers[fd]["error"], answers[fd]["message"])
            if lease.expired(self._job.folder):
                raise Refusal("lease_expired", "nobody renewed the trial's lease")
            if len(answers) < len(self._answers) and time.monotonic() > until:
                raise Broken("timeout", f"no answer within {max(0.0, within_s):.0f} s")
        return [answers[fd] for fd in self._answers]

    def debug(self) -> list[dict[str, Any]]:
        """Where every rank's NCCL wrote, and the end of it and of the rank's own output."""
        paths = [self._path(number, "nccl") for number in range(len(self._ranks))]
        return [
            {
                "path": path if os.path.exists(path) else None,
                "nccl_tail": folders.tail(path, TAIL),
                "log_tail": folders.tail(self._path(number, "log"), TAIL),
            }
            for number, path in enumerate(paths)
        ]

    def end(self) -> None:
        """Ends the processes: they hold GPU memory."""
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.wait()
            if rank.stdin is not None:
                try:
                    rank.stdin.close()
                except OSError:
                    pass
        for fd in self._answers:
            os.close(fd)
        self._answers = []
