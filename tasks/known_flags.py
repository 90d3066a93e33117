"""Which flags and variables of an arm the engine that is installed does not know, before it loads."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from configs.flags import in_version, title
from configs.releases import EngineKind, knows_variable
from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Installed(Value):
    """The engine as it is on a host."""

    engine: EngineKind
    version: str | None
    """None: it is not installed there."""
    options: tuple[str, ...] | None = None
    """Every option name of its own parser; None: it was not asked, or could not be."""
    why: str = ""
    """Why it could not be asked."""

    @property
    def name(self) -> str:
        """The engine with its version."""
        return f"{title(self.engine)} {self.version or '(not installed)'}"


def must_ask(flags: Iterable[str], engine: EngineKind, version: str) -> bool:
    """Whether the tables do not say of all flags whether this release has them."""
    return any(in_version(flag, version, engine) is None for flag in flags)


def unknown_here(flags: Iterable[str], installed: Installed) -> dict[str, str]:
    """Flag -> what is wrong with it, of those that the installed engine does not have.

    Its own parser is believed where it was asked, else the table; what neither knows is let
    through, and the engine will judge it.
    """
    found = {}
    for flag in flags:
        known = _known(flag, installed)
        if known is False:
            found[flag] = f"{installed.name} has no --{flag}{_instead(flag, installed)}"
    return found


def ignored_here(env: Mapping[str, str], installed: Installed) -> dict[str, str]:
    """Variable -> that the installed engine does not read it, as far as the table knows."""
    if installed.version is None or installed.engine != "sglang":
        return {}
    return {
        name: f"{installed.name} does not read {name}"
        for name in env
        if knows_variable(name, installed.version) is False
    }


def _known(flag: str, installed: Installed) -> bool | None:
    if installed.options is not None:
        return flag in installed.options
    if installed.version is None:
        return None
    return in_version(flag, installed.version, installed.engine)


def _instead(flag: str, installed: Installed) -> str:
    options = installed.options or ()
    longer = [name for name in options if name.startswith(f"{flag}-")]
    close = longer or difflib.get_close_matches(flag, options, n=1, cutoff=0.8)
    return f": did you mean {' or '.join(close[:3])}?" if close else ""
