"""A real PostgreSQL in a folder of its own, on a socket alone; for tests."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROLE = "eagle3"
_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"


class Postgres(NamedTuple):
    """A server that runs."""

    programs: Path
    socket: Path
    """The folder of its socket; it listens nowhere else."""
    log: Path

    @property
    def version(self) -> str:
        """Its name and number."""
        return f"PostgreSQL {self.ask('postgres', 'SHOW server_version').split()[0]}"

    def ask(self, database: str, query: str) -> str:
        """The only value of a query's answer."""
        where = ["-h", str(self.socket), "-U", ROLE, "-d", database]
        argv = [str(self.programs / "psql"), *where, "-tAc", query]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        return done.stdout.strip()


@contextmanager
def postgres(*databases: str) -> Iterator[Postgres]:
    """A server with these databases, the role `eagle3` their owner; ended with the block."""
    programs = _programs()
    # Short and open to its user: a socket's path holds 107 bytes, and pytest's folders are 0700.
    place = Path(tempfile.mkdtemp(prefix="eagle3-pg-"))
    try:
        if os.getuid() == 0:
            shutil.chown(place, _USER)
        data, log = place / "data", place / "log"
        _run(programs, "initdb", "-D", data, "-U", ROLE, "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-k {place} -c listen_addresses='' -c fsync=off"
        _run(programs, "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")
        try:
            made = Postgres(programs, place, log)
            for name in databases:
                made.ask("postgres", f"CREATE DATABASE {name}")
            yield made
        finally:
            _run(programs, "pg_ctl", "-D", data, "-m", "fast", "-w", "stop")
    finally:
        shutil.rmtree(place)


def _programs() -> Path:
    """Where PostgreSQL's programs are; skips where there are none that may be run."""
    places = sorted(_DEBIAN.glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which("pg_ctl")
    if found:
        places.append(Path(found).resolve().parent)
    if not places or not (places[-1] / "initdb").exists():
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    if os.getuid() == 0:
        try:
            pwd.getpwnam(_USER)
        except KeyError:
            pytest.skip("PostgreSQL is not run by root, and there is no user postgres")
    return places[-1]


def _run(programs: Path, name: str, *words: object) -> None:
    """Runs one of its programs, by its own user where we are root."""
    argv = [str(programs / name), *map(str, words)]
    if os.getuid() == 0:
        argv = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", *argv]
    # Not a pipe: the server inherits it, and would hold it open for as long as it runs.
    with tempfile.TemporaryFile() as out:
        done = subprocess.run(
            argv, check=False, cwd="/", stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        out.seek(0)
        assert done.returncode == 0, out.read().decode()
