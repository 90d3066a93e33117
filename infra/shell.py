"""The seam to a machine: run a command, put bytes, get bytes; local and SSH are two of a kind."""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol

from infra.errors import CommandKilled, ContactLost, FileRefused
from infra.resident import LocalResident

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.resident import Said


class Output(NamedTuple):
    """What a command left."""

    code: int
    """Exit code, 0 to 255."""
    out: str
    err: str

    @classmethod
    def of(cls, code: int, out: bytes, err: bytes) -> Output:
        """From bytes, decoded whole: in pieces, a torn character would be two wrong ones."""
        return cls(code, out.decode(errors="replace"), err.decode(errors="replace"))


class Shell(Protocol):
    """A machine's hand. Every call is bounded in time; commands are argv lists, never text."""

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> Output:
        """Runs a command to its end.

        Raises:
            ContactLost: It did not end in time, or the connection broke.
            CommandKilled: A signal ended it.
            HostRefused: The host will not have us.
        """

    def ask(self, program: Sequence[str], line: str, *, timeout_s: float = 30.0) -> Output:
        """Asks a program that stays, and is started where it does not run: see infra.resident.

        Raises:
            ContactLost: No answer in time, or it ended without one; started anew when asked again.
            CommandKilled: A signal ended what it did for this line.
            HostRefused: The host will not have us.
        """

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        """Writes a file: complete under its name, or not at all.

        Raises:
            FileNotFoundError: There is no such folder.
            FileRefused: It could not be written.
            ContactLost: The connection broke.
        """

    def get(self, path: str) -> bytes:
        """Reads a file.

        Raises:
            FileNotFoundError: There is none.
            FileRefused: It could not be read.
            ContactLost: The connection broke.
        """

    def close(self) -> None:
        """Lets go of the machine; what runs detached there goes on."""


class LocalShell:
    """This machine, for hosts that are the controller itself, and for tests."""

    def __init__(self) -> None:
        self._residents: dict[tuple[str, ...], LocalResident] = {}

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> Output:
        """See Shell."""
        try:
            done = subprocess.run(
                list(argv),
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired as error:
            raise ContactLost(f"no answer within {timeout_s:g} s: {argv[0]}") from error
        except FileNotFoundError:
            return Output(127, "", f"{argv[0]}: not found")
        except PermissionError:
            return Output(126, "", f"{argv[0]}: not permitted")
        if done.returncode < 0:
            raise CommandKilled(f"{argv[0]} was ended by signal {-done.returncode}")
        return Output.of(done.returncode, done.stdout, done.stderr)

    def ask(self, program: Sequence[str], line: str, *, timeout_s: float = 30.0) -> Output:
        """See Shell."""
        key = tuple(program)
        try:
            if key not in self._residents:
                self._residents[key] = LocalResident(program)
            said = self._residents[key].ask(line.encode(), timeout_s)
        except FileNotFoundError:
            return Output(127, "", f"{program[0]}: not found")
        except PermissionError:
            return Output(126, "", f"{program[0]}: not permitted")
        except TimeoutError as error:
            self._end(key)
            raise ContactLost(f"no answer within {timeout_s:g} s: {program[0]}") from error
        if said.ended:
            self._end(key)
        return said_by(program[0], said)

    def _end(self, key: tuple[str, ...]) -> None:
        resident = self._residents.pop(key, None)
        if resident is not None:
            resident.close()

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        """See Shell."""
        target = Path(path)
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        try:
            with os.fdopen(
                os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
            part.replace(target)
        except OSError as error:
            part.unlink(missing_ok=True)
            _raise_as_refused(error, path)

    def get(self, path: str) -> bytes:
        """See Shell."""
        try:
            return Path(path).read_bytes()
        except OSError as error:
            _raise_as_refused(error, path)

    def close(self) -> None:
        """See Shell."""
        for key in [*self._residents]:
            self._end(key)


def said_by(name: str, said: Said) -> Output:
    """What a program that stays has said, as a command's output.

    Raises:
        CommandKilled: A signal ended the request, or the program.
        ContactLost: The program ended of itself: nobody had asked for long.
    """
    if said.code < 0:
        raise CommandKilled(f"{name} was ended by signal {-said.code}")
    if said.ended and said.code == 0:
        raise ContactLost(f"{name} had ended")
    return Output.of(said.code, said.out, said.err)


def _raise_as_refused(error: OSError, path: str) -> NoReturn:
    if isinstance(error, FileNotFoundError):
        raise FileNotFoundError(path) from error
    raise FileRefused(f"{path}: {error.strerror or error}") from error
