"""What others hold on a host is named and never touched; what we left there is taken away."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from infra.rehearsal import memory
from tests import rehearsing, sweeping
from tests.agent_host import is_alive, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.record import Failure
    from tests.sweeping import Ground

_SLEEPER = "import signal; print('up', flush=True); signal.pause()"


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("foreign")) as made:
        rehearsing.patch(made.folder)
        yield made


@contextmanager
def somebody(*, marker: str | None = None) -> Iterator[int]:
    """A process that holds GPU memory in the tests below; its pid."""
    env = {**os.environ, **({"EAGLE3_SWEEP_TRIAL": marker} if marker else {})}
    with subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _SLEEPER],
        env=env,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            yield process.pid
        finally:
            process.kill()


@contextmanager
def held(ground: Ground, gpu: int, pid: int | None) -> Iterator[None]:
    """Memory on a card, by a process or by nobody that can be seen."""
    planted = memory.plant(ground.folder, gpu, "test", 4000, pid=pid)
    try:
        yield
    finally:
        planted.unlink()


def refused(ground: Ground, gpu_free_s: float = 5) -> Failure:
    """A trial that does not come to its launch."""
    tried = ground.trial(sweeping.sweep(arms="base", patches="", gpu_free_s=gpu_free_s))
    assert tried.record.status == "failed"
    assert tried.record.failure is not None
    assert "launch" not in tried.stages
    assert not (tried.folder / "server.log").exists()
    return tried.record.failure


def test_a_process_of_somebody_else_is_named_and_left_alone(ground: Ground) -> None:
    with somebody() as pid, held(ground, 3, pid):
        failure = refused(ground)
        assert is_alive(pid)
    assert (failure.stage, failure.failure_class) == ("clean_gpus", "foreign_gpu_process")
    assert f"pid {pid}" in failure.message
    assert failure.retry == "after_gpus_free"


def test_memory_that_no_visible_process_holds_is_not_free(ground: Ground) -> None:
    with held(ground, 5, None):
        failure = refused(ground, gpu_free_s=1)
    assert (failure.stage, failure.failure_class) == ("clean_gpus", "gpu_memory_held")
    assert "GPU 5: 4004 MiB" in failure.message


def test_memory_that_comes_back_in_time_is_waited_for(ground: Ground) -> None:
    planted = memory.plant(ground.folder, 5, "leaving", 4000)

    def let_go(text: str) -> None:
        if text == "clean_gpus: waiting":
            planted.unlink()

    port = rehearsing.free_port()
    tried = ground.trial(sweeping.sweep(arms="base", patches=""), hear=let_go, port=port)
    assert tried.record.status in sweeping.MEASURED
    assert not planted.exists()
    # And a port that the host file names is the one that is used.
    assert f"--port {port}" in (tried.folder / "command.txt").read_text()


def test_what_an_earlier_trial_of_ours_left_is_ended(ground: Ground) -> None:
    marker = "earlier-0001-abcdef01.b01-base.a1"
    (ground.root / "trials" / marker).mkdir(parents=True)
    (ground.root / "trials" / marker / "supervise.lock").touch()
    with somebody(marker=marker) as pid, held(ground, 0, pid):
        ground.trial(sweeping.sweep(arms="base", patches="", gpu_free_s=1))
        until(lambda: not is_alive(pid))


def test_a_trial_of_somebody_elses_sweep_is_not_ours(ground: Ground) -> None:
    """Another controller of the same user, with a folder of its own."""
    with somebody(marker="theirs-0001-abcdef01.b01-base.a1") as pid:
        with held(ground, 0, pid):
            assert refused(ground).failure_class == "foreign_gpu_process"
        assert is_alive(pid)


def test_on_a_host_that_is_ours_alone_every_process_of_our_user_goes(ground: Ground) -> None:
    with somebody() as pid, held(ground, 0, pid):
        ground.trial(sweeping.sweep(arms="base", patches="", gpu_free_s=1), owns_gpus=True)
        until(lambda: not is_alive(pid))


def test_a_port_that_is_taken_is_known_before_anything_is_loaded(ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        tried = ground.trial(sweeping.sweep(arms="base", patches=""), port=port)
    failure = tried.record.failure
    assert failure is not None
    assert (failure.stage, failure.failure_class) == ("launch", "port_in_use")
    assert str(port) in failure.message
    assert not (tried.folder / "server.log").exists()
    assert ground.empty()


def test_an_engine_of_ours_whose_process_was_lost_is_ended_before_the_next_trial(
    ground: Ground,
) -> None:
    """A real one: its controller and its supervisors were killed, so that no lease ends it."""
    from infra.agent import processes

    asked = sweeping.sweep("lost", arms="base", patches="")
    with ground.command_of(asked, lease_s=60) as command:  # not to run out on a busy machine
        command.reaches(lambda: sweeping.loads(ground.attempt("lost")))
        command.signal(signal.SIGKILL)
        command.ended()
    (engine,) = ground.engines()
    while (above := processes.look(engine)) is not None and above.ppid != 1:
        os.kill(above.ppid, signal.SIGKILL)
        until(lambda above=above: not is_alive(above.ppid))
    log = ground.attempt("lost") / "server.log"
    until(lambda: "ready to roll" in log.read_text(errors="replace"))  # it comes up unwatched
    assert ground.engines() == [engine]
    (ground.root / "claim.json").unlink()  # as when its lease has run out
    tried = ground.trial(sweeping.sweep("other", arms="base", patches=""))
    (clean,) = (stage for stage in tried.record.stages if stage.name == "clean_gpus")
    assert clean.note.startswith("ended ")
    assert tried.record.status in sweeping.MEASURED
    assert not is_alive(engine)
