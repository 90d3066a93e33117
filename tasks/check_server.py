"""Guards on the server and its host: does it run what was asked, alone and at full clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.effective import setting_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tasks.check_facts import ServerFacts

# Bits of nvidia-smi's clocks_event_reasons.active that mean trouble: hardware slowdown, software
# and hardware thermal slowdown, hardware power brake. Not: idle, a set clock, the software power
# cap, sync boost (nvml.h, nvmlClocksEventReason*). A loaded card often sits at its power cap.
THROTTLE_BITS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}

# Where the engine listens and what it logs changes no number.
NOT_COMPARED = frozenset(
    ("host", "port", "api_key", "admin_api_key", "log_level", "nccl_port", "dist_init_addr")
)


def throttled(reasons: str | int) -> tuple[str, ...]:
    """The troubling reasons in a clocks_event_reasons mask, such as ``0x0000000000000048``.

    What is no mask (``[N/A]``) says nothing.
    """
    try:
        mask = reasons if isinstance(reasons, int) else int(reasons.strip(), 0)
    except ValueError:
        return ()
    return tuple(name for bit, name in THROTTLE_BITS.items() if mask & bit)


def differing_flags(
    asked: Mapping[str, str], effective: Mapping[str, str]
) -> tuple[tuple[str, str, str], ...]:
    """(flag, asked, effective) where the server says other than it was asked.

    Spelling does not count: dashes or underscores, case, 0.80 or 0.8, a slash at a path's end.
    Flags that the server does not report are unknown and left out, so are masked secrets.
    """
    known = {_flag(name): value for name, value in effective.items()}
    return tuple(
        (name, value, known[_flag(name)])
        for name, value in sorted(asked.items())
        if _flag(name) in known
        and _flag(name) not in NOT_COMPARED
        and "***" not in value
        and _plain(value) != _plain(known[_flag(name)])
    )


def _flag(name: str) -> str:
    return setting_name(name.casefold())


def _plain(value: str) -> str | float:
    text = value.strip().rstrip("/").casefold()
    try:
        return float(text)
    except ValueError:
        return {"null": "none", "": "none", "yes": "true", "no": "false"}.get(text, text)


def _not_active(s: ServerFacts) -> str | None:
    wrong = s.speculating and s.speculation_active is False
    return "the server says that it does not speculate" if wrong else None


def _not_asked(s: ServerFacts) -> str | None:
    wrong = not s.speculating and s.speculation_active is True
    return "the server says that it speculates" if wrong else None


def _flags(s: ServerFacts) -> str | None:
    wrong = differing_flags(s.asked, s.effective)
    return "; ".join(f"{name}: asked {a}, effective {e}" for name, a, e in wrong) or None


def _clocks(s: ServerFacts) -> str | None:
    slow = {gpu: names for gpu, mask in s.clock_reasons.items() if (names := throttled(mask))}
    return "; ".join(f"GPU {gpu}: {', '.join(names)}" for gpu, names in slow.items()) or None


def _foreign(s: ServerFacts) -> str | None:
    return "; ".join(s.foreign_processes) or None


def _unstable(s: ServerFacts) -> str | None:
    return "; ".join(s.unstable) or None


SERVER_LOOKS: tuple[tuple[str, Callable[[ServerFacts], str | None]], ...] = (
    ("speculation_not_active", _not_active),
    ("speculation_not_asked", _not_asked),
    ("flags_differ", _flags),
    ("clocks_throttled", _clocks),
    ("foreign_gpu_process", _foreign),
    ("warm_up_not_stable", _unstable),
)
