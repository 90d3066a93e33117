"""The agent on this machine: its real file in a temporary root, with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from infra.agent import ending, processes
from infra.agent.wait import wait
from infra.agent_file import agent_file

if TYPE_CHECKING:
    from pathlib import Path

# A bare interpreter starts in half the time, and finds nothing but the standard library.
BARE = ("-S", "-E")


def until(condition, within_s: float = 30.0) -> Any:
    """The first true value of a condition; fails the test if there is none in time."""
    end = time.monotonic() + within_s
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {within_s} s"
        pause.wait(0.01)


class Trial:
    """One trial's folder on the host."""

    def __init__(self, host: AgentHost) -> None:
        self.host = host
        self.name = f"t-{uuid.uuid4().hex[:12]}"
        self.path = host.root / "trials" / self.name
        self.path.mkdir(parents=True, mode=0o700)

    @property
    def state(self) -> Any:
        return json.loads((self.path / "state.json").read_text())

    def put_launch(self, *argv: str, **more: Any) -> None:
        value = {"trial": self.name, "argv": list(argv), "lease_s": 60, "grace_s": 0.2, **more}
        (self.path / "launch.json").write_text(json.dumps(value))

    def launch(self, *argv: str, **more: Any) -> Any:
        """Starts an engine; returns its first state."""
        self.put_launch(*argv, **more)
        answer = self.host.call("supervise", dir=str(self.path), root=str(self.host.root))
        return answer["state"]

    def wait(self, offset: int | None = 0, **more: Any) -> Any:
        """One poll, in this process: most tests wait often."""
        return json.loads(json.dumps(wait({"dir": str(self.path), "offset": offset, **more})))

    def wait_over(self, within_s: float = 30.0) -> Any:
        """The state once nothing happens any more."""
        seen: str | None = None

        def over() -> Any:
            nonlocal seen
            answer = self.wait(None, seen=seen, timeout_s=1.0)
            seen = answer["seen"]
            state = answer["state"]
            return state if state and state["phase"] in ("exited", "stopped") else None

        return until(over, within_s)

    def job(self, name: str, kind: str, request: dict[str, Any], **more: Any) -> Any:
        """Runs a job to its result."""
        self.host.call("start", dir=str(self.path), name=name, job=kind, request=request, **more)

        def ended() -> Any:
            return self.wait(None, job=name, seen="-", timeout_s=0.0)["job"]["result"]

        return until(ended, 60.0)

    def pid_in_log(self, word: str) -> Any:
        """The number after ``word=`` in the engine's log, once it is there."""

        def found() -> int | None:
            for line in (self.path / "server.log").read_text().splitlines():
                if line.startswith(f"{word}="):
                    return int(line.partition("=")[2])
            return None

        return until(found)


class AgentHost:
    """A root of its own, and the agent's file."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.root = folder / "root"
        self.root.mkdir(mode=0o700)
        file = agent_file()
        self.agent = folder / file.name
        self.agent.write_bytes(file.data)
        self.python = python
        self.trials: list[Trial] = []

    def trial(self) -> Trial:
        self.trials.append(Trial(self))
        return self.trials[-1]

    def run(
        self, *words: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, *BARE, str(self.agent), *words],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=60,
            env={**os.environ, **(env or {})},
        )

    def call(self, command: str, env: dict[str, str] | None = None, **request: Any) -> Any:
        """The answer to a request that must be granted."""
        done = self.run(command, json.dumps(request), env=env)
        assert done.returncode == 0, (done.stdout, done.stderr)
        answer = json.loads(done.stdout)
        assert answer["ok"] is True
        return answer

    def refusal(self, command: str, **request: Any) -> Any:
        """The answer to a request that must be refused."""
        done = self.run(command, json.dumps(request))
        assert done.returncode == 10, (done.returncode, done.stdout, done.stderr)
        answer = json.loads(done.stdout)
        assert answer["ok"] is False
        return answer

    def clean_up(self) -> None:
        """Ends whatever a test left."""
        for trial in self.trials:
            known = trial.path / "state.json"
            groups = [json.loads(known.read_text())["engine"]] if known.exists() else []
            ours = ending.Ours([g for g in groups if g], markers=[trial.name])
            assert not ending.end(ours, 0.0).survivors
            until(lambda folder=trial.path: not holds_lock(folder))


def holds_lock(folder: Path) -> bool:
    from infra.agent import state

    return (folder / state.LOCK).exists() and state.supervised(str(folder))


def process(pid: int) -> processes.Process:
    found = processes.look(pid)
    assert found is not None
    return found


def is_alive(pid: int) -> bool:
    found = processes.look(pid)
    return found is not None and found.state not in processes.GONE
