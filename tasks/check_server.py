"""Guards on the server as a whole: does it run what was asked, alone, and in our time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.effective import RESOLVED, setting_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tasks.check_facts import ServerFacts
    from tasks.check_limits import Limits

# Where the engine listens and what it logs changes no number.
NOT_COMPARED = frozenset(
    ("host", "port", "api_key", "admin_api_key", "log_level", "nccl_port", "dist_init_addr")
)


def differing_flags(
    asked: Mapping[str, str], effective: Mapping[str, str]
) -> tuple[tuple[str, str, str], ...]:
    """(flag, asked, effective) where the server says other than it was asked.

    Spelling does not count: dashes or underscores, case, 0.80 or 0.8, a slash at a path's end; nor
    does a word that the engine replaces by what it means.
    Flags that the server does not report are unknown and left out, so are masked secrets.
    """
    known = {_flag(name): value for name, value in effective.items()}
    return tuple(
        (name, value, known[_flag(name)])
        for name, value in sorted(asked.items())
        if _flag(name) in known
        and _flag(name) not in NOT_COMPARED
        and "***" not in value
        and not _same(_plain(value), _plain(known[_flag(name)]))
    )


def _same(asked: str | float, effective: str | float) -> bool:
    return asked == effective or effective in RESOLVED.get(str(asked), ())


def _flag(name: str) -> str:
    return setting_name(name.casefold())


def _plain(value: str) -> str | float:
    text = value.strip().rstrip("/").casefold()
    try:
        return float(text)
    except ValueError:
        return {"null": "none", "": "none", "yes": "true", "no": "false"}.get(text, text)


def _not_active(s: ServerFacts, _limits: Limits) -> str | None:
    wrong = s.speculating and s.speculation_active is False
    return "the server says that it does not speculate" if wrong else None


def _not_asked(s: ServerFacts, _limits: Limits) -> str | None:
    wrong = not s.speculating and s.speculation_active is True
    return "the server says that it speculates" if wrong else None


def _flags(s: ServerFacts, _limits: Limits) -> str | None:
    wrong = differing_flags(s.asked, s.effective)
    return "; ".join(f"{name}: asked {a}, effective {e}" for name, a, e in wrong) or None


def _clock(s: ServerFacts, limits: Limits) -> str | None:
    if s.clock is None or abs(s.clock.off_s) <= limits.clock_share * s.clock.most_s:
        return None
    least, most = s.clock.least_s, s.clock.most_s
    return f"the host counted {s.clock.host_s:.1f} s in {least:.1f} to {most:.1f} s of ours"


def _foreign(s: ServerFacts, _limits: Limits) -> str | None:
    return "; ".join(s.foreign_processes) or None


def _unstable(s: ServerFacts, _limits: Limits) -> str | None:
    return "; ".join(s.unstable) or None


SERVER_LOOKS: tuple[tuple[str, Callable[[ServerFacts, Limits], str | None]], ...] = (
    ("speculation_not_active", _not_active),
    ("speculation_not_asked", _not_asked),
    ("flags_differ", _flags),
    ("host_clock_off", _clock),
    ("foreign_gpu_process", _foreign),
    ("warm_up_not_stable", _unstable),
)
