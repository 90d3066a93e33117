"""What a figure draws as lines: settings, one colour and marker an arm, its best one strong."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from tasks.comparison import setting_label
from tasks.decision import no_claims
from tasks.figure_style import MARKERS, Label, Look, finish
from tasks.metrics import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.comparison import Comparison, Standing

Key = tuple[str, str]
"""Arm, and the label of one of its settings."""


class OnLadder(Protocol):
    """Anything of a comparison that belongs to one setting at one concurrency."""

    @property
    def arm(self) -> str:
        """The arm's name."""

    @property
    def levels(self) -> dict[str, str]:
        """Level by factor."""

    @property
    def concurrency(self) -> int:
        """Requests in flight."""


Point = TypeVar("Point", bound=OnLadder)


class Paint(NamedTuple):
    """Colours and markers: of an arm the same in every figure of a comparison."""

    look: Look
    arms: tuple[str, ...]
    """The baseline first, if it is known."""
    baseline: str | None
    strong: frozenset[Key]
    """The settings that are drawn strong and named, one an arm."""

    def colour(self, arm: str) -> str:
        """An arm's colour; the baseline's is no colour."""
        if arm == self.baseline:
            return self.look.baseline
        others = [name for name in self.arms if name != self.baseline]
        return self.look.arms[others.index(arm) % len(self.look.arms)]

    def marker(self, arm: str) -> str:
        """An arm's marker."""
        return MARKERS[self.arms.index(arm) % len(MARKERS)]

    def line(self, key: Key) -> dict[str, Any]:
        """How a setting's line is drawn."""
        colour = self.colour(key[0])
        if key not in self.strong:
            return {"color": colour, "linewidth": 1.0, "alpha": 0.35, "zorder": 2}
        marker = self.marker(key[0])
        return {"color": colour, "linewidth": 2.2, "marker": marker, "markersize": 6, "zorder": 3}

    def label(self, height: float, arm: str, text: str) -> Label:
        """A name at the end of an arm's line."""
        return Label(height, text, self.colour(arm), self.marker(arm))


def paint_for(comparison: Comparison, probe: str, look: Look) -> Paint:
    """Colours for a probe's figures; of each arm the setting that is best there is strong."""
    arms = list(dict.fromkeys(s.arm for s in comparison.standings))
    if comparison.baseline in arms:
        arms = [comparison.baseline, *(arm for arm in arms if arm != comparison.baseline)]
    mine = [s for s in comparison.standings if s.probe == probe]
    strong = frozenset(_best(mine, comparison.metrics[0]))
    return Paint(look, tuple(arms), comparison.baseline, strong)


def lines_of(points: Sequence[Point]) -> dict[Key, list[Point]]:
    """Points by setting, in the order of the ladder."""
    lines: dict[Key, list[Point]] = {}
    for point in sorted(points, key=lambda point: point.concurrency):
        lines.setdefault(key_of(point), []).append(point)
    return lines


def key_of(point: Any) -> Key:
    """The setting that a point belongs to."""
    return point.arm, setting_label(point.arm, point.levels)


def name_of(point: OnLadder) -> str:
    """The arm, its levels below it: a bare "ll" would be read as a two."""
    shown = ", ".join(f"{factor}={level}" for factor, level in sorted(point.levels.items()))
    return f"{point.arm}\n{shown}" if shown else point.arm


def value_of(standing: Standing, metric: str) -> float | None:
    """A standing's figure; of a time the median."""
    name = {"ttft_s": "ttft_p50_s", "tpot_s": "tpot_p50_s"}.get(metric, metric)
    value: float | None = getattr(standing, name, None)
    return value


def finish_for(figure: Any, comparison: Comparison, title: str, look: Look, right: float) -> Any:
    """Puts title, host and sweep over a figure, and the warning if it is no claim; returns it."""
    where = f"{comparison.host_class or 'no host'}, {', '.join(comparison.sweeps)}"
    alarms = no_claims(comparison)
    finish(figure, title, " - ".join([*alarms, where]), look, alarm=bool(alarms), right=right)
    return figure


def _best(standings: Sequence[Standing], metric: str) -> list[Key]:
    """Of each arm the setting that is best over its ladder."""
    sign = -1 if BY_NAME[metric].better == "lower" else 1
    best: dict[str, tuple[float, Key]] = {}
    for key, line in lines_of(standings).items():
        known = [value for s in line if (value := value_of(s, metric))]
        if not known:
            continue
        score = sign * fmean(math.log(value) for value in known)
        if key[0] not in best or score > best[key[0]][0]:
            best[key[0]] = (score, key)
    return [key for _, key in best.values()]
