"""A screen in Markdown: its own page, and what the report of a sweep says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.decision import REHEARSAL
from tasks.markdown_text import inline
from tasks.reduce_path import WORDS
from tasks.report_tables import table
from tasks.screen import LevelScreen, Screen, kept_words
from tasks.screen_rank import Agreement, agreements
from tasks.screen_sizes import size_words, sizes_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.comparison import Comparison

FIGURE = "screen.png"


def screen_page(screen: Screen, *, figure: bool) -> str:
    """screen.md: what was found, with the decision first."""
    parts = [f"# Screen of {screen.factor}, {screen.sweep}"]
    if screen.rehearsal:
        parts.insert(0, f"> **{REHEARSAL}.** All figures come from the rehearsal host.")
    parts.append(f"**{inline(decision(screen))}**")
    parts.append(
        f"{screen.run} on {screen.host} ({screen.host_class}), {screen.tp} GPUs share a layer; "
        f"sizes of decode {sizes_words(screen.sizes.bytes)} ({screen.sizes.rows[0]} to "
        f"{screen.sizes.rows[-1]} rows of {screen.sizes.hidden:,} {screen.sizes.dtype})."
    )
    if figure:
        parts.append(f"![Microseconds of an all-reduce against its size]({FIGURE})")
    sections = [
        ("Who stays", _choice(screen)),
        ("Microseconds of an all-reduce", times_table(screen)),
        ("What carries decode's all-reduces", _paths(screen)),
        ("What the levels change", _effects(screen)),
        ("Starts", _starts(screen)),
        ("Findings", _findings(screen)),
        ("Notes", "\n".join(f"- {inline(note)}" for note in screen.notes)),
    ]
    parts += [f"## {title}\n\n{text}" for title, text in sections if text]
    return "\n\n".join(parts) + "\n"


def screen_section(screen: Screen | None, comparison: Comparison) -> str:
    """What a sweep's report says of its screen: what was dropped, and whether the screen was right."""
    if screen is None:
        return ""
    parts = [
        "\n".join(f"- {inline(words)}" for words in kept_words(screen)),
        f"Timed: {inline(screen.timed_note)}.",
        _effects(screen),
        _findings(screen),
        agreement_text(agreements(screen, comparison), screen),
    ]
    return "\n\n".join(part for part in parts if part)


def decision(screen: Screen) -> str:
    """What the screen says, in one sentence."""
    ranking = screen.ranking() if screen.timed_by == "nccl" else ()
    kept = f"{', '.join(screen.kept)} of {screen.factor} go into the plan"
    if not ranking:
        return f"{kept}; nothing ranks them ({screen.timed_note})."
    name, ratio = ranking[0]
    if name == screen.reference:
        return f"{kept}; no level is faster than {screen.reference} over all sizes."
    return f"{kept}; {name} takes {ratio:.2f} x the time of {screen.reference} over all sizes."


def times_table(screen: Screen) -> str:
    """Median and interval of every level, one column a size."""
    timed = [one for one in screen.levels if one.times]
    if not timed:
        return f"None: {inline(screen.timed_note)}."
    head = ["level", *(size_words(time.size_bytes) for time in timed[0].times)]
    rows = [
        [one.level, *(_time(t.median_us, t.low_us, t.high_us) for t in one.times)] for one in timed
    ]
    text = f"Median over rounds, its 95 % interval below; {inline(screen.timed_note)}."
    return f"{text}\n\n{table(head, rows)}"


def agreement_text(found: Sequence[Agreement], screen: Screen) -> str:
    """The screen's ranking against the trials', arm by arm, with the levels named."""
    if not found:
        return ""
    lines = ["The screen's ranking by all-reduce time against the trials' by step time:"]
    for one in found:
        spearman = "" if one.spearman is None else f", Spearman {one.spearman:+.2f}"
        kendall = "not defined" if one.kendall is None else f"{one.kendall:+.2f}"
        through = "" if one.by_nccl else " (its all-reduces do not go through NCCL)"
        lines.append(
            f"- {inline(one.arm)}{through}: screen {_order(one.screen)}; trials "
            f"{_order(one.trials)}; Kendall {kendall}{spearman} over {len(one.screen)} levels"
        )
    return "\n".join(lines) + f"\n\nRatios are to {inline(screen.reference)}."


def _order(ranking: Sequence[tuple[str, float]]) -> str:
    return " < ".join(f"{inline(name)} ({ratio:.3f})" for name, ratio in ranking)


def _time(median: float, low: float | None, high: float | None) -> str:
    return (
        f"{median:.2f}" if low is None or high is None else f"{median:.2f} [{low:.2f}, {high:.2f}]"
    )


def _choice(screen: Screen) -> str:
    ratios = dict(screen.ranking())
    rows = []
    for one in screen.levels:
        ratio = ratios.get(one.level)
        what = "reference" if one.level == screen.reference else "stays"
        rows.append(
            [
                one.level,
                "-" if ratio is None else f"{ratio:.3f}",
                what if one.level in screen.kept else "left out",
                inline(screen.dropped.get(one.level, "")),
            ]
        )
    return table(["level", f"time / {screen.reference}", "plan", "why not"], rows)


def _paths(screen: Screen) -> str:
    lines = []
    for arm, path in screen.paths.items():
        sure = "proven by its start" if path.proven else "told from its flags"
        sure += "" if path.sure else " alone, so not certain"
        steps = "; ".join(
            f"{WORDS[step.kind]}"
            + (f" up to {size_words(step.up_to_bytes)}" if step.up_to_bytes is not None else "")
            + f" ({inline(step.why)})"
            for step in path.steps
        )
        used = " and ".join(WORDS[kind] for kind in path.kinds(screen.sizes.bytes))
        lines.append(
            f"- {inline(arm)}: **{used}** at all sizes of decode, {sure}. In order: {steps}"
        )
    return "\n".join(lines)


def _effects(screen: Screen) -> str:
    """One row for each variable of each level, arms with the same answer together."""
    rows = []
    for one in screen.levels:
        answers: dict[tuple[str, str, str, str], list[str]] = {}
        for arm, effects in one.effects.items():
            for e in effects:
                answers.setdefault((e.variable, e.asked, e.effect, e.reason), []).append(arm)
        for (variable, asked, effect, reason), arms in answers.items():
            where = "all" if len(arms) == len(screen.paths) else ", ".join(arms)
            cells = [f"{variable}={asked}", effect.replace("_", " "), where, reason]
            rows.append([inline(one.level), *map(inline, cells)])
    return table(["level", "variable", "effect", "arms", "why"], rows) if rows else ""


def _starts(screen: Screen) -> str:
    rows = [row for one in screen.levels if (row := _start(one))]
    head = ["level", "start", "NCCL", "links", "channels", "took"]
    return table(head, rows) if rows else ""


def _start(one: LevelScreen) -> list[str]:
    start = one.start
    if start is None:
        return []
    said = start.status if start.status == "started" else f"{start.failure_class}: {start.message}"
    log = start.nccl
    if log is None:
        return [one.level, inline(said), "wrote nothing", "-", "-", "-"]
    links = ", ".join(f"{link} x {count}" for link, count in log.links.items())
    taken = ", ".join(f"{name}={value}" for name, value in log.taken.items())
    channels = "-" if log.channels is None else str(log.channels)
    cells = [one.level, said, log.version or "-", links or "-", channels, taken or "-"]
    return [inline(cell) for cell in cells]


def _findings(screen: Screen) -> str:
    return "\n".join(
        f"- **{f.name}** {inline(f.where)}: {inline(f.evidence)}; {inline(f.advice)}."
        for f in screen.findings
    )
