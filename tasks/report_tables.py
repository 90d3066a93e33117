"""Tables of a comparison as text: for the report, the terminal and Prefect's artifact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.comparison import setting_label
from tasks.decision import interval, percent
from tasks.metrics import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.comparison import Cell, Comparison, SpeedAccount, Standing

UNKNOWN = "-"


def comparison_rows(comparison: Comparison) -> list[dict[str, str]]:
    """Every verdict as a row of text, arms before factors; the keys are the column heads."""
    cells = sorted(comparison.cells, key=lambda cell: cell.contrast)  # stable
    return [
        {
            "probe": cell.probe,
            "figure": cell.metric,
            "setting": setting_label(cell.arm, cell.levels),
            "against": setting_label(cell.reference_arm, cell.reference_levels),
            "users": str(cell.concurrency),
            "value": quantity(cell.value, cell.metric),
            "reference": quantity(cell.reference_value, cell.metric),
            "change": percent(cell.ratio),
            "interval": interval(cell),
            "verdict": _verdict(cell),
        }
        for cell in cells
    ]


def verdict_table(cells: Sequence[Cell]) -> str:
    """Ratios of one probe and figure, one line a setting and concurrency."""
    unit = BY_NAME[cells[0].metric].unit if cells else ""
    return table(
        ("setting", "users", unit, "reference", "change", "interval", "blocks", "verdict"),
        (
            (
                setting_label(c.arm, c.levels),
                str(c.concurrency),
                figure(c.value),
                figure(c.reference_value),
                percent(c.ratio),
                interval(c),
                str(c.blocks),
                _verdict(c) + (" (noisy)" if c.own_noise else ""),
            )
            for c in cells
        ),
    )


def standing_table(standings: Sequence[Standing]) -> str:
    """Absolute figures of one probe."""
    return table(
        (
            "setting",
            "users",
            "tokens/s",
            "tokens/s per user",
            "TTFT p50",
            "TTFT p99",
            "TPOT p50",
            "step",
            "accept length",
            "blocks",
        ),
        (
            (
                setting_label(s.arm, s.levels) + (" (baseline)" if s.baseline else ""),
                str(s.concurrency),
                figure(s.output_tok_s),
                figure(s.user_tok_s),
                seconds(s.ttft_p50_s),
                seconds(s.ttft_p99_s),
                seconds(s.tpot_p50_s),
                seconds(s.step_s),
                UNKNOWN if s.accept_length is None else f"{s.accept_length:.2f}",
                str(s.blocks),
            )
            for s in standings
        ),
    )


def acceptance_table(standings: Sequence[Standing]) -> str:
    """Share of verify steps that accepted at least k drafts; empty text without speculation."""
    known = [s for s in standings if s.accept_at_k]
    depth = max((len(s.accept_at_k or ()) for s in known), default=0)
    if not depth:
        return ""
    return table(
        ("setting", "users", "accept length", *(f"≥ {k}" for k in range(1, depth + 1))),
        (
            (
                setting_label(s.arm, s.levels),
                str(s.concurrency),
                UNKNOWN if s.accept_length is None else f"{s.accept_length:.2f}",
                *(f"{share:.0%}" for share in s.accept_at_k or ()),
                *("0%",) * (depth - len(s.accept_at_k or ())),
            )
            for s in known
        ),
    )


def part_table(standings: Sequence[Standing]) -> str:
    """Accept length by kind of text and by half of the output, the ladder's rungs side by side."""
    names = list(dict.fromkeys(part.name for s in standings for part in s.parts))
    if not names:
        return ""
    lengths = {
        (setting_label(s.arm, s.levels), s.concurrency): {
            p.name: f"{p.accept_length:.2f}{ends(p.low, p.high)}" for p in s.parts
        }
        for s in standings
        if s.parts
    }
    return table(
        ("setting", "users", *names),
        (
            (label, str(users), *(p.get(n, UNKNOWN) for n in names))
            for (label, users), p in lengths.items()
        ),
    )


def account_table(accounts: Sequence[SpeedAccount]) -> str:
    """Speed of a user split into acceptance and step time, and the accept length to break even."""
    return table(
        (
            "setting",
            "users",
            "speed of a user",
            "from acceptance",
            "from step time",
            "step",
            "baseline's step",
            "accept length",
            "breaks even at",
        ),
        (
            (
                setting_label(a.arm, a.levels),
                str(a.concurrency),
                f"x {a.user_ratio:.2f}",
                f"x {a.accept_ratio:.2f}{ends(a.accept_low, a.accept_high)}",
                f"x {1 / a.step_ratio:.2f}{ends(_inverse(a.step_high), _inverse(a.step_low))}",
                seconds(a.step_s),
                seconds(a.reference_step_s),
                f"{a.accept_length:.2f}",
                (
                    f"**{a.break_even_accept_length:.2f}**"
                    if a.accept_length < a.break_even_accept_length
                    else f"{a.break_even_accept_length:.2f}"
                )
                + ends(a.break_even_low, a.break_even_high),
            )
            for a in accounts
        ),
    )


def ends(low: float | None, high: float | None) -> str:
    """An interval behind its figure; nothing where none is known."""
    return "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"


def _inverse(value: float | None) -> float | None:
    return 1 / value if value else None


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars and line ends in cells are escaped."""
    lines = [_line(head), _line(["---"] * len(head)), *(_line(row) for row in rows)]
    return "\n".join(lines)


def figure(value: float | None) -> str:
    """A number with about three figures, thousands apart."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def seconds(value: float | None) -> str:
    """A time in the unit that suits it."""
    if value is None:
        return UNKNOWN
    return f"{value:.2f} s" if value >= 1 else f"{figure(value * 1000)} ms"


def quantity(value: float, metric: str) -> str:
    """A figure with its unit, as short as it goes."""
    unit = BY_NAME[metric].unit
    if unit == "s":
        return seconds(value)
    return figure(value) if unit == "1" else f"{figure(value)} {unit}"


def _verdict(cell: Cell) -> str:
    if cell.verdict != "undecided":
        return cell.verdict
    if cell.confidence is None:
        return "undecided (one block)"
    if cell.further_blocks is not None:
        return f"undecided ({cell.further_blocks} more)"
    if cell.further_hosts is not None:
        return f"undecided ({cell.further_hosts} more host{'s'[: cell.further_hosts != 1]})"
    return "undecided"


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"
