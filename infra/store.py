"""The run folder, which is the truth: one folder per sweep run, one per trial, written atomically.

<runs>/<sweep>/<sweep run>/
    sweep.json plan.json run.json
    report/ report.html report.md comparison.json *.png
    arrival/ <host>.json
    blocks.json lanes/ <place>.lock, where several places work on it at once
    trials/<trial>.a<attempt>/
        record.json now.json command.txt environment.json server.log facts.json <patch>.diff
        samples/*.jsonl.gz gpus/*.json
        nodes/<host>/ facts.json server.log, of the other nodes of a place
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from infra.errors import WorldError
from infra.run_locks import alone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from configs.values import Value


_ATTEMPT = re.compile(r"(?P<trial>.+)\.a(?P<attempt>[1-9][0-9]*)")


class DiskFull(WorldError):
    """The controller's disk took no more; nothing half-written stands under a final name."""


def write_bytes(path: Path, data: bytes, *, lasting: bool = True) -> None:
    """Writes a file: whole under its name, or not at all.

    Args:
        path: The file.
        data: All of it.
        lasting: Whether it survives the controller's own crash, for which the disk is waited for.

    Raises:
        DiskFull: No space is left.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with _room_for(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(data)
                if lasting:
                    file.flush()
                    os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


@contextmanager
def _room_for(path: Path) -> Iterator[None]:
    """Gives a full disk its name."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise DiskFull(f"{path}: no space left on the controller's disk") from error
        raise


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text, whole or not at all."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Writes plain data as JSON, whole or not at all; refuses NaN."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def note_json(path: Path, value: Any) -> None:
    """Writes plain data that is of use at this moment only."""
    write_bytes(path, json.dumps(value, ensure_ascii=False).encode(), lasting=False)


def write_value(path: Path, value: Value) -> None:
    """Writes a value as JSON, whole or not at all."""
    write_text(path, value.model_dump_json(indent=1) + "\n")


class TrialFolder:
    """The folder of one attempt at one trial."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def record(self) -> Path:
        """record.json; it stands there exactly when the attempt has come to an end."""
        return self.path / "record.json"

    @property
    def now(self) -> Path:
        """now.json: what the attempt is doing while it runs; of no meaning afterwards."""
        return self.path / "now.json"

    @property
    def finished(self) -> bool:
        """Whether this attempt came to an end."""
        return self.record.is_file()

    @property
    def attempt(self) -> int:
        """From 1."""
        return int(self.path.name.rpartition(".a")[2])

    @property
    def trial(self) -> str:
        """The trial's id."""
        return self.path.name.rpartition(".a")[0]

    def of_node(self, name: str) -> TrialFolder:
        """What is kept of another node of the attempt's place."""
        return TrialFolder(self.path / "nodes" / name)

    def append(self, name: str, data: bytes) -> None:
        """Appends to a growing file (the engine's log as it comes).

        Raises:
            DiskFull: No space is left.
        """
        with _room_for(self.path / name):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self.path / name).open("ab") as file:
                file.write(data)

    def samples(self, name: str, raw: bytes) -> None:
        """Keeps raw sample rows, compressed."""
        write_bytes(self.path / "samples" / f"{name}.jsonl.gz", gzip.compress(raw, mtime=0))


class RunFolder:
    """The folder of one run of a sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def id(self) -> str:
        """The run's id: <sweep>-<number>."""
        return f"{self.path.parent.name}-{self.path.name}"

    @property
    def holder(self) -> str:
        """Who this run is towards hosts: unique over controllers, the same when it goes on."""
        return f"{self.id}-{read_json(self.path / 'run.json')['uid']}"

    def marker(self, folder: TrialFolder, node: str | None = None) -> str:
        """The mark of an attempt's processes and folder on the host.

        Args:
            folder: The attempt's.
            node: Name of another node than the leading one: two nodes may be containers that
                share their processes, and each is ended by its own mark.
        """
        return f"{self.holder}.{folder.path.name}" + (f".{node}" if node else "")

    def marker_on(self, folder: TrialFolder, host: str) -> str:
        """The mark that an attempt has on a host, which may be another node of its place."""
        other = folder.of_node(host).path.is_dir()
        return self.marker(folder, host if other else None)

    @contextmanager
    def alone(self) -> Iterator[RunFolder]:
        """Holds the run: two processes must not go on with one run at once.

        Raises:
            RunHeld: Another process works on it.
        """
        with alone(self.path, self.id):
            yield self

    def trials(self) -> Iterator[TrialFolder]:
        """All attempts, by trial and number."""
        for _trial, _attempt, name in self._attempts():
            yield TrialFolder(self.path / "trials" / name)

    def records(self) -> dict[str, bytes]:
        """record.json of the last finished attempt of each trial."""
        found: dict[str, bytes] = {}
        place = self.path / "trials"
        for trial, _attempt, name in self._attempts():
            with suppress(FileNotFoundError):  # not finished
                found[trial] = place.joinpath(name, "record.json").read_bytes()
        return found

    def _attempts(self) -> list[tuple[str, int, str]]:
        """Trial, number and folder name of all attempts, sorted."""
        place = self.path / "trials"
        names = [path.name for path in place.iterdir()] if place.is_dir() else []
        found = map(_ATTEMPT.fullmatch, names)
        return sorted((one["trial"], int(one["attempt"]), one[0]) for one in found if one)

    def next_attempt(self, trial: str) -> TrialFolder:
        """A new folder for another attempt."""
        done = [folder.attempt for folder in self.trials() if folder.trial == trial]
        path = self.path / "trials" / f"{trial}.a{max(done, default=0) + 1}"
        with _room_for(path):
            path.mkdir(mode=0o700, parents=True)
        return TrialFolder(path)


class Store:
    """All run folders."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def runs(self, sweep: str) -> list[RunFolder]:
        """The runs of a sweep, oldest first."""
        found = [path for path in (self.root / sweep).glob("[0-9]*") if path.name.isdecimal()]
        return [RunFolder(path) for path in sorted(found, key=lambda path: int(path.name))]

    def all_runs(self) -> Iterator[RunFolder]:
        """The runs of all sweeps, the latest of each first."""
        for folder in sorted(self.root.glob("*")):
            yield from reversed(self.runs(folder.name))

    def new_run(self, sweep: str) -> RunFolder:
        """A new run folder; concurrent callers get different ones."""
        parent = self.root / sweep
        with _room_for(parent):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = max((int(run.path.name) for run in self.runs(sweep)), default=0)
        while True:
            number += 1
            path = parent / f"{number:04d}"
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                continue
            return RunFolder(path)

    def latest(self, sweep: str, digest: str | None = None) -> RunFolder | None:
        """The latest run of a sweep, or the latest of one plan.

        A folder without a plan is of a run that was killed as it began: nobody can go on with it.
        """
        for run in reversed(self.runs(sweep)):
            plan = read_json(run.path / "plan.json")
            if plan and (digest is None or plan.get("digest") == digest):
                return run
        return None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return value if isinstance(value, dict) else {}
