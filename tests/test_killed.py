"""What becomes of a host when the process that sweeps it is killed, stopped, or doubled."""

from __future__ import annotations

import json
import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from infra.run_locks import RunHeld
from tasks.venue import StageFailedError
from tests import sweeping
from tests.agent_host import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from configs.sweep import Sweep
    from tests.sweeping import Ground

pytestmark = pytest.mark.slow

# The lease is ten seconds; so long after its end at the latest nothing may be left.
_LEASE_S = 10.0
_AFTER_S = 10.0
_MOMENTS = {"wait_ready": sweeping.loads, "probe": sweeping.probes}


class Left(NamedTuple):
    """What was found on a host after the process that swept it was killed."""

    ground: Ground
    asked: Sweep
    before: bytes
    """The engine's source before the sweep."""
    finished: list[str]
    """Attempts with a record when the process was killed."""
    attempt: Path
    """The folder on the host of the attempt in flight."""
    held: bool
    """Whether its engine ran when the process was killed."""
    free_after_s: float

    @property
    def state(self) -> Any:
        return json.loads((self.attempt / "state.json").read_text())

    def record(self, attempt: int) -> Any:
        trial = self.attempt.name.split(".")[1]
        run = self.ground.latest(self.asked.name)
        return json.loads((run.path / f"trials/{trial}.a{attempt}/record.json").read_text())


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("killed")) as made:
        yield made


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Left]]:
    """Sweeps on two hosts, killed at two moments: their leases run out at the same time."""
    with ExitStack() as stack:
        left: dict[str, Left] = {}
        died: dict[str, float] = {}
        for name in _MOMENTS:
            place = tmp_path_factory.mktemp(f"killed-{name}")
            ground = stack.enter_context(sweeping.ground(place))
            left[name] = _killed_at(ground, name)
            died[name] = time.monotonic()
        for name, one in left.items():
            until(one.ground.empty, _LEASE_S + _AFTER_S + 5)
            until(lambda one=one: one.state["phase"] == "stopped")
            # By the host's own record: the second sweep is under way when the first host is free.
            left[name] = one._replace(free_after_s=one.state["ended_monotonic"] - died[name])
        yield left


def _killed_at(ground: Ground, name: str) -> Left:
    """The second trial of a sweep is killed in its probe, the first of another in its start."""
    arms = "base+tuned" if name == "probe" else "tuned"
    asked = sweeping.sweep("night", arms=arms, tokens=96)
    before = ground.source.read_bytes()
    with ground.command_of(asked) as command:
        if name == "probe":
            command.reaches(lambda: sweeping.finished(ground, "night"))
        command.reaches(lambda: _MOMENTS[name](ground.attempt("night")))
        command.signal(signal.SIGKILL)
        command.ended()
    done, attempt = sweeping.finished(ground, "night"), ground.attempt("night")
    return Left(ground, asked, before, done, attempt, bool(ground.engines()), 0.0)


@pytest.mark.parametrize("moment", _MOMENTS)
def test_after_sigkill_the_host_frees_itself(killed: dict[str, Left], moment: str) -> None:
    left = killed[moment]
    assert left.held
    assert left.free_after_s < _LEASE_S + _AFTER_S
    until(lambda: left.state["phase"] == "stopped")
    assert left.state["end_reason"] == "lease_expired"


@pytest.mark.parametrize("moment", _MOMENTS)
def test_run_again_the_sweep_finishes_without_repeating_and_says_so(
    killed: dict[str, Left], moment: str
) -> None:
    left = killed[moment]
    outcome = left.ground.run(left.asked)
    assert {record.status for record in outcome.records} <= sweeping.MEASURED
    assert len(outcome.records) == len(left.asked.arms)
    assert len(left.finished) == (1 if moment == "probe" else 0)
    assert [f"{skip.trial}.a1" for skip in outcome.skipped] == left.finished
    said = "\n".join(left.ground.said)
    for done in left.finished:
        assert f"{done.removesuffix('.a1')}: skipped: done already" in said
    assert "was interrupted: recorded, will run again" in said
    cut, again = left.record(1), left.record(2)
    assert (cut["status"], cut["failure"]["failure_class"]) == ("failed", "cancelled")
    assert again["status"] in sweeping.MEASURED
    assert left.ground.source.read_bytes() == left.before


@pytest.mark.parametrize(
    ("number", "moment"), [(signal.SIGTERM, "wait_ready"), (signal.SIGINT, "probe")]
)
def test_a_stopped_sweep_tears_down_at_once_and_records_it(
    ground: Ground, number: signal.Signals, moment: str
) -> None:
    before = ground.source.read_bytes()
    name = f"stopped-{moment.replace('_', '-')}"
    with ground.command_of(sweeping.sweep(name, arms="tuned", tokens=96), lease_s=60) as command:
        command.reaches(lambda: _MOMENTS[moment](ground.attempt(name)))
        stopped = time.monotonic()
        command.signal(number)
        assert command.ended() == 130
        assert ground.empty()
        assert time.monotonic() - stopped < 10
        assert "torn down" in command.text
        assert "Traceback" not in command.text
    (folder,) = ground.latest(name).trials()
    record = json.loads(folder.record.read_bytes())
    assert (record["failure"]["failure_class"], record["failure"]["stage"]) == ("cancelled", moment)
    assert record["stages"][-1]["name"] == "tear_down"
    assert ground.source.read_bytes() == before
    assert not (ground.root / "claim.json").exists()


def test_clean_frees_a_host_at_once(ground: Ground) -> None:
    before = ground.source.read_bytes()
    with ground.command_of(sweeping.sweep("cut", arms="tuned"), lease_s=60) as command:
        command.reaches(lambda: sweeping.loads(ground.attempt("cut")))
        command.signal(signal.SIGKILL)
        command.ended()
    assert ground.engines()
    with ground.command("clean", "cut") as clean:
        assert clean.ended() == 0, clean.text
        assert "1 attempts ended" in clean.text
        assert "b01-tuned.a1 was interrupted" in clean.text
    assert ground.empty()
    assert ground.source.read_bytes() == before
    assert not (ground.root / "claim.json").exists()
    (folder,) = ground.latest("cut").trials()
    assert json.loads(folder.record.read_bytes())["failure"]["failure_class"] == "cancelled"
    with ground.command("clean", "cut") as again:
        assert again.ended() == 0
        assert "nothing was running" in again.text


def test_one_host_one_sweep_one_run_one_process(ground: Ground) -> None:
    asked = sweeping.sweep("first", arms="base", patches="", tokens=96)
    with ground.command_of(asked) as command:
        command.reaches(lambda: sweeping.loads(ground.attempt("first")))
        holder = ground.latest("first").holder
        with pytest.raises(StageFailedError) as refused:
            ground.run(sweeping.sweep("second", arms="base", patches=""))
        assert refused.value.failure.failure_class == "host_claimed"
        assert holder in refused.value.failure.message
        with pytest.raises(RunHeld, match=str(command.process.pid)):
            ground.run(asked)
        with ground.command("clean", "first") as clean:
            assert clean.ended() == 1
            assert f"process {command.process.pid}" in clean.text
        assert command.ended() == 0, command.text
    (folder,) = ground.latest("first").trials()
    assert json.loads(folder.record.read_bytes())["status"] in sweeping.MEASURED
