"""Rows: what is full, taken, or somebody else's on a host; and processes that will not go."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from infra.errors import WorldError
from infra.rehearsal import memory, strange
from tests import sweeping
from tests.agent_host import is_alive, until
from tests.chaos.scene import LONG, PROBING, SLOW, Once, nothing_left, ours_on, scene, short, user
from tests.chaos.table import no_small_disk, row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SLEEPER = "import signal; print('up', flush=True); signal.pause()"


@contextmanager
def somebody() -> Iterator[int]:
    """A process of nobody's trial."""
    with subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _SLEEPER], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            yield process.pid
        finally:
            process.kill()


@row("strangers", "there before the launch")
def before(place: Path) -> str:
    with scene(place) as ground, somebody() as pid:
        planted = memory.plant(ground.folder, 3, "theirs", 4000, pid=pid)
        tried = ground.trial(short())
        failure = tried.record.failure
        assert failure is not None
        assert failure.failure_class == "foreign_gpu_process"
        assert f"pid {pid}" in failure.message
        assert user() in failure.message
        assert is_alive(pid)
        assert planted.exists()
        planted.unlink()
        nothing_left(ground)
        return f"refused: {failure.message}"


@row("strangers", "arriving in the middle of the probe", fast=True)
def in_the_middle(place: Path) -> str:
    with scene(place, **SLOW) as ground, somebody() as pid:
        planted: list[Path] = []

        def arrive() -> None:
            planted.append(memory.plant(ground.folder, 3, "theirs", 4000, pid=pid))

        hear = Once(PROBING, arrive)
        outcome = ground.run(short(**LONG), hear=hear)
        assert hear.done
        record = ground.tried(outcome, "b01-tuned", 1).record
        assert record.status == "suspect", record.failure
        (found,) = (f for f in record.findings if f.name == "foreign_gpu_process")
        assert f"pid {pid}" in found.evidence
        assert user() in found.evidence
        assert is_alive(pid)
        assert planted[0].exists()
        planted[0].unlink()
        nothing_left(ground)
        return f"suspect: {found.evidence}"


@row("ports", "the HTTP port of the host file is taken")
def http_port(place: Path) -> str:
    with scene(place) as ground, socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        tried = ground.trial(short(), port=port)
        assert tried.record.failure is not None
        assert tried.record.failure.failure_class == "port_in_use"
        assert not (tried.folder / "server.log").exists()
        nothing_left(ground)
        return tried.record.failure.message


@row("ports", "the NCCL port that the sweep fixes is taken", fast=True)
def nccl_port(place: Path) -> str:
    with scene(place) as ground, socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        asked = short()
        engine = asked.engine.model_copy(
            update={"flags": {**asked.engine.flags, "nccl-port": port}}
        )
        tried = ground.trial(asked.model_copy(update={"engine": engine}))
        failure = tried.record.failure
        assert failure is not None
        assert (failure.stage, failure.failure_class) == ("launch", "port_in_use")
        assert f"nccl-port {port}" in failure.message
        assert not (tried.folder / "server.log").exists()
        nothing_left(ground)
        return failure.message


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A disk of a chosen size under a folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Takes all the room that is left."""
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


@row("disk", "full on the host, in the middle of the probe", why_not=no_small_disk)
def full_host(place: Path) -> str:
    with scene(place, **SLOW) as ground, small_disk(ground.root, "8m"):
        hear = Once(PROBING, lambda: fill(ground.root))
        outcome = ground.run(short(**LONG), hear=hear, lease_s=10)
        assert hear.done
        failure = ground.tried(outcome, "b01-tuned", 1).record.failure
        assert failure is not None
        assert failure.failure_class == "disk_full", failure
        until(ground.empty, 60)
        (ground.root / "filler").unlink()
        again = ground.run(short(**LONG))
        assert {record.status for record in again.records} <= sweeping.MEASURED
        nothing_left(ground)
    return f"disk_full at {failure.stage}; freed, and measured when there was room"


@row("disk", "full on the host, before the launch", why_not=no_small_disk)
def full_host_before(place: Path) -> str:
    with scene(place) as ground, small_disk(ground.root, "8m"):

        def at(stage: str) -> None:
            if stage == "launch":
                fill(ground.root)

        outcome = ground.run(short(), at=at, lease_s=10)
        failure = ground.tried(outcome, "b01-tuned", 1).record.failure
        assert failure is not None
        assert failure.failure_class == "disk_full", failure
        until(ground.empty, 60)
        (ground.root / "filler").unlink()
        again = ground.run(short())
        assert {record.status for record in again.records} <= sweeping.MEASURED
        nothing_left(ground)
    return f"disk_full at {failure.stage}; measured when there was room"


@row("disk", "full on the controller, while the engine starts", why_not=no_small_disk)
def full_controller(place: Path) -> str:
    with scene(place) as ground, small_disk(place / "runs", "8m"):

        def at(stage: str) -> None:
            if stage == "wait_ready":
                fill(place / "runs")

        with pytest.raises(WorldError, match="no space left on the controller"):
            ground.run(short(), at=at)
        nothing_left(ground)
        (place / "runs" / "filler").unlink()
        (cut,) = ground.latest("night").trials()
        assert not cut.finished
        assert not list((place / "runs").rglob("*.part"))
        outcome = ground.run(short())
        (record,) = outcome.records
        assert (record.attempt, record.status in sweeping.MEASURED) == (2, True), record.failure
        return "the host was freed; no half file; run again it went on as a2"


@row("processes", "a pid of a dead engine is a stranger's now", fast=True)
def reused(place: Path) -> str:
    with scene(place) as ground, somebody() as pid:
        with ground.command_of(short("cut"), lease_s=60) as command:
            command.reaches(lambda: sweeping.loads(ground.attempt("cut")))
            command.signal(signal.SIGKILL)
            command.ended()
        path = ground.attempt("cut") / "state.json"
        for engine in ground.engines():
            os.killpg(engine, signal.SIGKILL)
        until(lambda: json.loads(path.read_text())["phase"] == "exited")
        state = json.loads(path.read_text())
        state["engine"].update(pid=pid, pgid=pid, sid=pid)
        path.write_text(json.dumps(state | {"phase": "running"}))
        with ground.command("clean", "cut") as clean:
            assert clean.ended() == 0, clean.text
        assert is_alive(pid)
        until(lambda: not ground.holders() and not ours_on(ground))
        return "a stranger with the pid of the record was left alone"


@row("processes", "the engine is a zombie that nobody collects")
def zombie(place: Path) -> str:
    with scene(place, **SLOW) as ground:
        stopped: list[int] = []

        def kill() -> None:
            state = json.loads((ground.attempt("night") / "state.json").read_text())
            stopped.append(state["supervisor"]["pid"])
            os.kill(stopped[0], signal.SIGSTOP)
            os.killpg(state["engine"]["pid"], signal.SIGKILL)

        began = time.monotonic()
        hear = Once(PROBING, kill)
        try:
            outcome = ground.run(short(silence_s=3, **LONG), hear=hear, lease_s=60)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        first = ground.tried(outcome, "b01-tuned", 1).record
        assert first.failure is not None
        assert first.failure.failure_class in {"engine_dead", "probe_failed"}, first.failure
        until(ground.empty)
        return f"{first.failure.failure_class}; both attempts in {time.monotonic() - began:.0f} s"


@row("processes", "the engine cannot be killed")
def unkillable(place: Path) -> str:
    with scene(place, **SLOW) as ground:
        strange.tell(ground.folder, deaf=[])
        deaf: list[int] = []

        def stick() -> None:
            deaf.extend(ground.engines())
            strange.tell(ground.folder, deaf=deaf)

        hear = Once(PROBING, stick)
        try:
            outcome = ground.run(short(**LONG), hear=hear, lease_s=60)
            assert hear.done
            (record,) = outcome.records
            assert record.failure is not None
            assert record.failure.failure_class == "unkillable_process", record.failure
            assert str(deaf[0]) in record.failure.message
            seconds = {stage.name: stage.seconds for stage in record.stages}["tear_down"]
            assert seconds < 60
        finally:
            strange.tell(ground.folder, deaf=[])
            for pid in deaf:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        until(ground.empty)
        return f"reported after {seconds:.0f} s: {record.failure.message}"
