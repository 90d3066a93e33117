"""What arms of several engines do not share: settings without a counterpart, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.counterparts import COUNTERPARTS, without_counterpart
from configs.flags import canonical, title
from configs.layers import arm_flags, engine_kinds, engine_of, reference_levels

if TYPE_CHECKING:
    from configs.releases import EngineKind
    from configs.sweep import Sweep

# Where the engine listens and what each way of speculating becomes is no setting of this kind.
_APART = ("speculative-", "enable-prompt-tokens-details")


def unmatched_settings(sweep: Sweep) -> tuple[str, ...]:
    """One line for each setting that a sweep gives to one engine and another does not have.

    Near counterparts, whose numbers mean something else, have a line as well. Empty where all
    arms run on one engine.
    """
    kinds = engine_kinds(sweep)
    lines: dict[str, None] = {}
    for kind in kinds if len(kinds) > 1 else ():
        given = _given(sweep, kind)
        for other in kinds:
            if other == kind:
                continue
            for flag in without_counterpart(given, kind, other):
                lines[f"{title(kind)}'s {flag} has no counterpart in {title(other)}"] = None
            for row in COUNTERPARTS:
                if kind == kinds[0] and row.weight == "near" and row.name(kind) in given:
                    lines[
                        f"{title(kind)}'s {row.name(kind)} and {title(other)}'s {row.name(other)} "
                        f"are near, not the same: {row.note}"
                    ] = None
    return tuple(lines)


def _given(sweep: Sweep, kind: EngineKind) -> list[str]:
    """Canonical names of all flags that arms of an engine get, each once."""
    names: dict[str, None] = {}
    for arm in sweep.arms:
        if engine_of(sweep, arm).kind == kind:
            for flag in arm_flags(sweep, arm, reference_levels(sweep)):
                names[canonical(flag, kind)] = None
    return [name for name in names if not name.startswith(_APART)]
