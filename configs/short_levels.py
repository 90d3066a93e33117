"""The short form of a level: ``{NCCL_PROTO: LL}`` for ``{env: {NCCL_PROTO: LL}}``."""

from __future__ import annotations

import re
from typing import Any, Final

from configs.problems import WrongKeyError

LONG: Final = ("flags", "env")
# A variable has no lower-case letter, a flag no upper-case one: no name is both.
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_FLAG = re.compile(r"[^A-Z]*")


def long_form(level: Any) -> Any:
    """A level as ``{flags, env}``, whichever way it is written; what is no mapping stays as it is.

    The long form is one that names ``flags`` or ``env`` (no release of SGLang has a flag of either
    name). In the short form a name without lower-case letters is a variable, and one without
    upper-case letters is a flag.

    Raises:
        WrongKeyError: Both forms at once, or a name that is neither.
    """
    if not isinstance(level, dict) or not level or all(key in LONG for key in level):
        return level
    found: dict[str, dict[str, Any]] = {}
    for name, value in level.items():
        if any(key in level for key in LONG):
            if name not in LONG:
                raise WrongKeyError(
                    name,
                    "stands beside flags or env: put it into one of them, or leave both words out",
                )
            continue
        if _VARIABLE.fullmatch(name):
            found.setdefault("env", {})[name] = value
        elif _FLAG.fullmatch(name):
            found.setdefault("flags", {})[name] = value
        else:
            raise WrongKeyError(
                name,
                "is neither a variable (capitals, such as NCCL_PROTO) nor a flag (small letters): "
                f"did you mean {name.upper()}? A variable with small letters goes under env",
            )
    return found
