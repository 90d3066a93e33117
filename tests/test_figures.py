"""Figures show what the comparison says: intervals, break-even, the split, for any eyes."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tasks.account_figure import account_figure
from tasks.compare import compare
from tasks.figure_lines import paint_for
from tasks.figure_style import DARK, LIGHT
from tasks.figures import acceptance_figure, draw_pictures, speed_figure
from tests.builders import speeds

if TYPE_CHECKING:
    from tasks.comparison import Comparison

LADDER = (1, 8, 64)
# Machado, Oliveira and Fernandes (2009), severity 1; they act on linear light.
EYES = {
    "all cones": np.eye(3),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.01182, 0.04294, 0.968881],
        ]
    ),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.3039],
        ]
    ),
}


def night(arms: int = 1) -> Comparison:
    """Three blocks; the first drafter gains at one user and loses at sixty-four."""
    noise = np.random.default_rng(5)
    ladder = {1: 1.5, 8: 1.2, 64: 0.8}
    records = []
    for arm in range(arms + 1):
        blocks = {
            block: {
                c: 50.0
                * (ladder[c] - 0.05 * arm if arm else 1.0)
                * float(np.exp(noise.normal() * 0.01))
                for c in LADDER
            }
            for block in (1, 2, 3)
        }
        records += speeds("base" if arm == 0 else f"b{arm}", blocks, 2.5 if arm else 1.0)
    return compare(records)


def panels(figure: Any) -> Any:
    assert figure is not None
    return figure.axes


def drawn(axes: Any) -> list[tuple[list[float], list[float]]]:
    return [
        (np.atleast_1d(line.get_xdata()).tolist(), np.atleast_1d(line.get_ydata()).tolist())
        for line in axes.get_lines()
    ]


def test_intervals_stand_in_both_panels():
    comparison = night()
    left, right = panels(speed_figure(comparison, "load", LIGHT))
    cells = [c for c in comparison.cells if c.metric == comparison.metrics[0]]
    assert len(cells) == len(LADDER)
    for cell in cells:
        assert cell.low is not None
        assert cell.high is not None
        assert ([cell.concurrency] * 2, [cell.low, cell.high]) in drawn(right)
        ends = [cell.low * cell.reference_value, cell.high * cell.reference_value]
        assert ([cell.concurrency] * 2, ends) in drawn(left)


def test_break_even_is_a_ring_and_a_dotted_line_with_its_number():
    comparison = night()
    (crossing,) = [x for x in comparison.crossovers if x.metric == comparison.metrics[0]]
    left, right = panels(speed_figure(comparison, "load", LIGHT))
    ring = ([crossing.concurrency], [1.0])
    assert ring in drawn(right)
    for axes in (left, right):
        assert ([crossing.concurrency] * 2, [0, 1]) in drawn(axes)
    assert f"{crossing.concurrency:.0f} users" in [text.get_text() for text in right.texts]


def test_the_measured_concurrencies_are_the_ticks():
    comparison = night()
    for figure in (
        speed_figure(comparison, "load", LIGHT),
        account_figure(comparison, "load", LIGHT),
    ):
        for axes in panels(figure):
            assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "8", "64"]
            assert axes.get_xscale() == "log"


def test_the_split_of_a_users_speed_multiplies():
    comparison = night()
    axes_of = panels(account_figure(comparison, "load", DARK))
    lines = [next(ys for xs, ys in drawn(axes) if xs == list(LADDER)) for axes in axes_of]
    acceptance, step, speed = map(np.array, lines)
    assert acceptance * step == pytest.approx(speed)
    assert len({axes.get_ylim() for axes in axes_of}) == 1
    accounts = sorted(comparison.accounts, key=lambda a: a.concurrency)
    assert speed.tolist() == [a.user_ratio for a in accounts]


def test_every_named_line_is_named_once_in_each_figure():
    comparison = night(arms=3)
    for draw in (speed_figure, acceptance_figure, account_figure):
        texts = [
            text.get_text().split(":")[0]
            for text in panels(draw(comparison, "load", LIGHT))[-1].texts
        ]
        assert [texts.count(f"b{i}") for i in (1, 2, 3)] == [1, 1, 1], draw


def test_arms_differ_in_colour_or_marker_and_look_the_same_in_every_figure():
    comparison = night(arms=9)
    paint = paint_for(comparison, "load", LIGHT)
    looks = [(paint.colour(arm), paint.marker(arm)) for arm in paint.arms]
    assert len(set(looks)) == 10
    assert len({marker for _, marker in looks[:8]}) == 8
    assert looks[0][0] == LIGHT.baseline
    other = paint_for(comparison, "load", DARK)
    assert [other.marker(arm) for arm in other.arms] == [marker for _, marker in looks]


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_are_told_apart_by_any_eyes(look, eyes):
    seen = {colour: _lab(EYES[eyes] @ _linear(colour)) for colour in (look.baseline, *look.arms)}
    distance = {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(seen, 2)}
    assert min(distance.values()) > 15, min(distance, key=lambda pair: distance[pair])


def test_pictures_for_the_page_are_the_same_each_time():
    comparison = night()
    pictures = draw_pictures(comparison)
    assert list(pictures) == ["speed-load.png", "acceptance-load.png", "steps-load.png"]
    assert draw_pictures(comparison) == pictures
    for light, dark in pictures.values():
        assert light != dark
        assert len(light) < 150_000


def _linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear: np.ndarray = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear


def _lab(linear: np.ndarray) -> np.ndarray:
    """CIE L*a*b* under D65."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ np.clip(linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
