"""The seam to a machine: run a command, put bytes, get bytes; local and SSH are two of a kind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from infra.errors import ContactLost

if TYPE_CHECKING:
    from collections.abc import Sequence


class Output(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


class Shell(Protocol):
    """A machine's hand. Every call is bounded in time; commands are argv lists, never text."""

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> Output:
        """Runs a command to its end.

        Raises:
            ContactLost: It did not end in time, or the connection broke.
        """

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        """Writes a file: complete under its name, or not at all."""

    def get(self, path: str) -> bytes:
        """Reads a file.

        Raises:
            FileNotFoundError: There is none.
        """

    def close(self) -> None:
        """Lets go of the machine; what runs detached there goes on."""


class LocalShell:
    """This machine, for hosts that are the controller itself, and for tests."""

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
        return Output(
            done.returncode,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
        )

    def put(self, data: bytes, path: str, *, mode: int = 0o600) -> None:
        """See Shell."""
        target = Path(path)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        part.touch(mode=mode)
        part.write_bytes(data)
        part.chmod(mode)
        part.replace(target)

    def get(self, path: str) -> bytes:
        """See Shell."""
        return Path(path).read_bytes()

    def close(self) -> None:
        """See Shell."""
