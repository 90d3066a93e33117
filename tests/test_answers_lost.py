"""Every answer of a host is lost once, after what was asked has been done: a trial goes on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from flows.conduct import Conductor
from flows.outcome import Hands
from flows.question import pose
from flows.runs import open_run
from flows.stages import PlainRunner
from infra.connect import address
from infra.errors import ContactLost
from infra.host_agent import HostAgent
from infra.ssh import SshShell
from tests import sweeping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from configs.host import Host
    from infra.shell import Output, Shell


T = TypeVar("T")


class Lossy:
    """A shell that does what it is asked and loses the answer, the first time."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.lost: Counter[str] = Counter()
        self._asked: set[object] = set()

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> Output:
        return self._once(argv[0], lambda: self._shell.run(argv, timeout_s=timeout_s), *argv)

    def ask(self, program: Sequence[str], line: str, *, timeout_s: float = 30.0) -> Output:
        command = line.split('"')[1]
        return self._once(
            command, lambda: self._shell.ask(program, line, timeout_s=timeout_s), line
        )

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        return self._once("put", lambda: self._shell.put(data, path, mode=mode), "put", path)

    def get(self, path: str) -> bytes:
        return self._once("get", lambda: self._shell.get(path), "get", path)

    def close(self) -> None:
        self._shell.close()

    def _once(self, name: str, work: Callable[[], T], *key: str) -> T:
        answer = work()
        if key in self._asked:
            return answer
        self._asked.add(key)
        self.lost[name] += 1
        raise ContactLost(f"the answer to {name} was lost")


def test_a_trial_in_which_every_answer_is_lost_once(tmp_path):
    with sweeping.ground(tmp_path) as ground:
        before = ground.source.read_bytes()
        shells: list[Lossy] = []

        def connect(spec: Host) -> HostAgent:
            shells.append(Lossy(SshShell(address(spec))))
            return HostAgent(shells[-1], spec, patience_s=20)

        asked = sweeping.sweep("lossy", arms="tuned", tokens=16, per_slot=2)
        question = pose(asked, str(ground.host_file()))
        hands = Hands(
            connect, lambda _trial: PlainRunner(lambda _t: None), None, ground.said.append
        )
        with open_run(ground.runs, question) as run:
            outcome = Conductor(question, run, hands).conduct()
        (record,) = outcome.records
        assert record.status in sweeping.MEASURED, record.failure
        assert [patch.action for patch in record.patches] == ["insert"]
        assert record.trial in {folder.trial for folder in run.trials()}
        assert [folder.attempt for folder in run.trials()] == [1]
        assert ground.source.read_bytes() == before
        assert ground.empty()
        assert {"supervise", "wait", "file", "claim", "release", "put"} <= {*shells[0].lost}
