"""One file of a host by one command: what is asked of its shell, and what its answer means.

SFTP needs six round trips for a file; a command needs one, tells a full disk from other faults,
and needs no reader thread (paramiko's prefetch thread dies with a traceback when the line is cut).
"""

from __future__ import annotations

import posixpath
import secrets
from typing import TYPE_CHECKING

from infra.errors import FileRefused

if TYPE_CHECKING:
    from infra.shell import Output

_MISSING = 44
# The size is compared before the name changes: a line that is cut ends stdin like an end of file.
# -C: never through a link that somebody has put there.
# The trap: what is refused is read to its end all the same, see channel.send.
_WRITE = """trap 'cat >/dev/null' EXIT
[ -d "$1" ] || exit 44
[ ! -d "$3" ] || { echo 'is a folder' >&2; exit 1; }
umask 077; set -C
cat >"$2" && chmod "$5" "$2" && [ "$(($(wc -c <"$2")))" -eq "$4" ] && mv -f -- "$2" "$3" && exit
rm -f -- "$2"; exit 1"""
_READ = """[ -e "$1" ] || exit 44
exec cat -- "$1\""""


def reading(path: str) -> list[str]:
    """The command that prints a file."""
    return ["env", "LC_ALL=C", "sh", "-c", _READ, "sh", absolute(path)]


def writing(path: str, size: int, mode: int) -> list[str]:
    """The command that makes a file of so many bytes of stdin: whole under its name, or not."""
    path = absolute(path)
    folder, name = posixpath.split(path)
    part = posixpath.join(folder, f".{name}.{secrets.token_hex(4)}.part")
    words = [folder, part, path, str(size), f"{mode:04o}"]
    return ["env", "LC_ALL=C", "sh", "-c", _WRITE, "sh", *words]


def absolute(path: str) -> str:
    """A path that no program takes for an option; relative ones begin where commands do."""
    return path if path.startswith("/") else f"./{path}"


def check_done(answer: Output, path: str, verb: str) -> None:
    """Raises what the host says about a file.

    Args:
        answer: Of one of the two commands.
        path: The file.
        verb: ``read`` or ``written``.

    Raises:
        FileNotFoundError: There is none, or no folder for it.
        FileRefused: With the host's own words: not permitted, no space left on device, ...
    """
    if answer.code == _MISSING:
        raise FileNotFoundError(path)
    if answer.code != 0:
        lines = answer.err.strip().splitlines()
        said = lines[0].rpartition(": ")[2].lower() if lines else "it did not arrive whole"
        raise FileRefused(f"{path} could not be {verb}: {said}")
