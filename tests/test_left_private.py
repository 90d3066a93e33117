"""What a sweep makes is ours alone, even where new files are open to all; its engine is local."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests import sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweeping import Ground

_LISTEN = "0A"
_LOOPBACK = "0100007F"


class Seen(NamedTuple):
    """What was seen under load and after the end."""

    listens: set[str]
    """Local addresses at the engine's port, as the kernel writes them."""
    open_then: list[str]
    open_after: list[str]
    number_then: int
    folders_here: list[str]


def open_to_others(root: Path) -> list[str]:
    """Files and folders that another user could read or write, or that are no better than that."""
    paths = [root, *root.rglob("*")]
    wanted = {True: 0o700, False: 0o600}
    return [
        f"{path.relative_to(root)} {stat.S_IMODE(status.st_mode):o}"
        for path in paths
        if not path.is_symlink()
        and stat.S_IMODE((status := path.stat()).st_mode) != wanted[path.is_dir()]
    ]


def listening(port: int) -> set[str]:
    """Addresses at which somebody listens on a port, IPv4 and IPv6."""
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    here = [row[1].rpartition(":") for row in rows if row[3] == _LISTEN]
    return {address for address, _, found in here if int(found, 16) == port}


def port_of(attempt: Path) -> int:
    """The port in the engine's command line."""
    pid = json.loads((attempt / "state.json").read_text())["engine"]["pid"]
    argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return int(argv[argv.index(b"--port") + 1])


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    before = os.umask(0)  # everything that does not say its rights is open to all
    try:
        with sweeping.ground(tmp_path_factory.mktemp("private")) as made:
            yield made
    finally:
        os.umask(before)


@pytest.fixture(scope="module")
def seen(ground: Ground) -> Seen:
    asked = sweeping.sweep("private", arms="tuned", env_from="HF_TOKEN", tokens=96)
    path = ground.sweep_file(asked)
    ground.host_file(lease_s=60)
    with ground.command("run", str(path), HF_TOKEN="canary-token") as command:
        command.reaches(lambda: sweeping.probes(ground.attempt("private")))
        attempt = ground.attempt("private")
        listens = listening(port_of(attempt))
        then = open_to_others(ground.root)
        number = len(list(ground.root.rglob("*")))
        assert command.ended() == 0, command.text
    runs = ground.runs.root / "private"
    here = [
        str(path)
        for path in (runs, runs / "0001")  # who does not come in here sees nothing below
        if stat.S_IMODE(path.stat().st_mode) != 0o700
    ]
    return Seen(listens, then, open_to_others(ground.root), number, here)


def test_the_engine_listens_on_loopback_alone(seen: Seen) -> None:
    assert seen.listens == {_LOOPBACK}


def test_on_the_host_every_folder_is_0700_and_every_file_0600(seen: Seen) -> None:
    assert seen.number_then > 20
    assert seen.open_then == []
    assert seen.open_after == []


def test_nobody_else_comes_into_a_run_folder(seen: Seen) -> None:
    assert seen.folders_here == []
