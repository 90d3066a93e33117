"""The place of the agent on a host: whether our program lies there."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from infra.errors import AgentRefusal

if TYPE_CHECKING:
    from infra.shell import Shell

_SHORT_S = 20.0
_FOREIGN = 3
_LOOK = """for one in "$@"; do
[ ! -e "$one" ] || [ -O "$one" ] || { printf '%s\\n' "$one"; exit 3; }
done
[ -f "$3" ]"""


def is_there(shell: Shell, path: str, *, below: str) -> bool:
    """Whether our program lies on the host; looked at before anything of it is run.

    Args:
        shell: To the host.
        path: Of the program.
        below: Our root there; it, the program's folder and the program must be our own.

    Raises:
        AgentRefusal: ``foreign_folder``: somebody else's folder or file is in our place, and a
            program in it would be theirs, whatever its name says.
    """
    folder = posixpath.dirname(path)
    seen = shell.run(["sh", "-c", _LOOK, "sh", below, folder, path], timeout_s=_SHORT_S)
    if seen.code == _FOREIGN:
        text = "belongs to another user: name one of your own under folder in the host file"
        raise AgentRefusal("foreign_folder", f"{seen.out.strip()} {text}", {})
    return seen.code == 0
