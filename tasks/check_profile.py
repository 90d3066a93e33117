"""Findings about profiles: how far the shares may be trusted. They concern no figure of speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tasks.record import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tasks.profile_record import StepProfile

MOST_OTHER: Final = 0.05
"""Share of GPU time that may be of kernels which the table does not know."""
TOLERATED: Final = "it concerns the profile alone, which ran after all figures were taken"


class ProfileGuard(NamedTuple):
    """One reason to distrust a profile."""

    name: str
    look: Callable[[StepProfile], str | None]
    """What was seen, with the figure; None: all is well."""
    limit: str
    advice: str


def _failed(profile: StepProfile) -> str | None:
    return profile.trouble


def _no_steps(profile: StepProfile) -> str | None:
    if profile.trouble or profile.steps:
        return None
    if profile.left_out:
        return f"a prefill fell into each of {profile.left_out} steps"
    return "no decode step could be told in the trace"


def _cut(profile: StepProfile) -> str | None:
    if profile.trouble or profile.whole:
        return None
    return f"the trace ends in the middle, after {profile.steps} whole steps"


def _ranks(profile: StepProfile) -> str | None:
    if profile.trouble or profile.ranks >= profile.ranks_asked:
        return None
    return f"{profile.ranks} of {profile.ranks_asked} ranks left a trace"


def _other(profile: StepProfile) -> str | None:
    if profile.shares is None or profile.shares.other < MOST_OTHER:
        return None
    named = "; ".join(f"{kernel.name} {kernel.share:.1%}" for kernel in profile.unknown)
    return f"other {profile.shares.other:.1%}: {named}"


def _drafter(profile: StepProfile) -> str | None:
    if profile.shares is None or not profile.drafter_asked or profile.drafter is not None:
        return None
    return "the drafter's kernels could not be told from the target's"


PROFILE_GUARDS: Final = (
    ProfileGuard(
        "profile_failed",
        _failed,
        "a trace of some decode steps",
        "read the server's log of that moment; the profile can be taken again, the figures stand",
    ),
    ProfileGuard(
        "profile_no_steps",
        _no_steps,
        "decode steps that the engine marks (SGLang from 0.5.12), or CUDA graphs that tell them",
        "use CUDA graphs, fewer and longer answers (sampling.max_new_tokens), or more decode_steps",
    ),
    ProfileGuard(
        "profile_cut",
        _cut,
        "a whole trace",
        "look for a full disk under the host's folder; ask for fewer decode_steps",
    ),
    ProfileGuard(
        "profile_ranks_missing",
        _ranks,
        "a trace of every rank",
        "read the server's log: a rank that does not record may be in another state than the rest",
    ),
    ProfileGuard(
        "profile_other",
        _other,
        f"kernels that the table knows for all but {MOST_OTHER:.0%} of the time",
        "add the kernels' names to tasks/kernel_table.py; the kept rows can be reduced again",
    ),
    ProfileGuard(
        "profile_drafter_unknown",
        _drafter,
        "target and drafter apart, by the engine's marks or by the size of their graphs",
        "leave host_events on, and CUDA graphs of the drafter too",
    ),
)


def check_profiles(profiles: Iterable[StepProfile]) -> tuple[Finding, ...]:
    """Every reason to distrust a profile.

    None of them makes a trial suspect: a profile runs after everything that measures speed.
    """
    return tuple(
        Finding(
            name=guard.name,
            where=f"{profile.probe} c{profile.concurrency}",
            evidence=seen,
            limit=guard.limit,
            advice=guard.advice,
            tolerated=TOLERATED,
        )
        for profile in profiles
        for guard in PROFILE_GUARDS
        if (seen := guard.look(profile)) is not None
    )
