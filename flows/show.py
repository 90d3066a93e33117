"""How plans, verdicts and warnings look in a terminal of 80 columns or more."""

from __future__ import annotations

import shlex
import textwrap
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from configs.cells import cells, crossing_size, is_restricted
from configs.layers import engine_kinds, engine_of, reference_levels
from configs.nodes import place_name
from configs.probe import clients_of, profiles_of, rungs_of
from configs.rules import arm_flags
from flows.show_command import WIDTH, commands
from tasks.decision import leading_cells
from tasks.launch import engine_env, flag_words
from tasks.noise_floor import BLOCKS
from tasks.report_tables import comparison_rows
from tasks.unmatched import unmatched_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from configs.host import Host
    from flows.question import Question
    from tasks.comparison import Comparison
    from tasks.noise_floor import Floor

_COLOUR = {"better": "green", "worse": "red", "same": "default", "undecided": "yellow"}
_COLUMNS = ("setting", "users", "value", "reference", "change", "interval", "verdict")


def plan_text(question: Question) -> RenderableType:
    """A plan: every trial, every command, what differs from the baseline, what would be touched."""
    sweep, plan = question.sweep, question.plan
    size = f"{len(plan.trials)} trials in {sweep.blocks} blocks"
    places = [place_name(entry) for entry in sweep.hosts]
    parts: list[RenderableType] = [
        *_wrapped(f"{sweep.name}: {sweep.question}", style="bold"),
        Text(f"{size}, seed {sweep.seed}, plan {plan.digest}, on {', '.join(places)}"),
        Text("\nSettings: command, and what differs from the baseline", style="bold"),
    ]
    parts += _settings(question)
    parts += _unmatched(question)
    parts += [Text("\nTraffic of every trial", style="bold"), *_traffic(question)]
    parts += [Text("\nTouched on the host", style="bold"), *_touched(question)]
    parts += [Text("\nTrials, in this order", style="bold"), _trials(question)]
    parts += [Text("")] if question.warnings else []
    for warning in question.warnings:
        parts += _wrapped(f"warning: {warning}", style="yellow")
    return Group(*parts)


def _wrapped(text: str, *, style: str = "", first: str = "", rest: str = "  ") -> list[Text]:
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [Text(line, style=style) for line in lines]


def _settings(question: Question) -> Iterator[Text]:
    """Every setting once: the baseline first, then arms and levels in the file's order."""
    sweep = question.sweep
    nodes = question.nodes(place_name(sweep.hosts[0]))
    host = nodes[0]
    run = cells(sweep)
    # Stable: the baseline's cells come first, and each arm's stay in the file's order.
    for cell in sorted(run, key=lambda cell: cell.arm != sweep.baseline):
        reference = cell.arm == sweep.baseline and cell.levels == reference_levels(sweep)
        head = Text(f"\n{cell}", style="bold")
        head.append("  (baseline)" if cell.arm == sweep.baseline else "", style="dim")
        yield head
        yield from commands(question.sweep, nodes, cell.arm, cell.levels)
        if not reference:
            yield from _difference(question, host, cell.arm, cell.levels)
    if is_restricted(sweep):
        left_out = crossing_size(sweep) - len(run)
        yield Text(f"\nNot run: {left_out} of {crossing_size(sweep)} cells of the crossing")


def _difference(question: Question, host: Host, arm: str, levels: dict[str, str]) -> Iterator[Text]:
    """Flags and environment against the baseline under the factors' first levels."""
    sweep = question.sweep

    def words(of_arm: str, under: dict[str, str]) -> list[str]:
        env = engine_env(sweep, host, of_arm, under)
        flags, kind = arm_flags(sweep, of_arm, under), engine_of(sweep, of_arm).kind
        given = [shlex.join(flag_words({flag: value}, kind)) for flag, value in flags.items()]
        return [*(f"{name}={shlex.quote(env[name])}" for name in env), *filter(None, given)]

    before = words(sweep.baseline, reference_levels(sweep))
    here = words(arm, levels)
    for sign, style, of, other in (("-", "red", before, here), ("+", "green", here, before)):
        for word in of:
            if word not in other:
                yield from (Text(line, style=style) for line in _changed(sign, word))


def _changed(sign: str, word: str) -> list[str]:
    """One change; an option whose value does not fit beside it stands above it."""
    option, _, value = word.partition(" ")
    if len(word) <= WIDTH:
        return [f"  {sign} {word}"]
    return [f"  {sign} {option}", f"      {value}"]


def _unmatched(question: Question) -> Iterator[Text]:
    """Where arms of several engines are compared: what one has and the other has not."""
    if len(engine_kinds(question.sweep)) > 1:
        yield Text("\nAcross engines", style="bold")
        for line in unmatched_settings(question.sweep):
            yield from _item(line)


def _traffic(question: Question) -> Iterator[Text]:
    """Every measurement of a boot, by the name that it bears in the record."""
    for name, probe in rungs_of(question.sweep.probes).items():
        what = f"prompts {probe.prompts}"
        if probe.random is not None:
            shortest, longest = probe.random.shortest, probe.random.tokens
            lengths = f"{longest}" if shortest == longest else f"{shortest} to {longest}"
            what = f"{lengths} random tokens (throughput only)"
        elif probe.prompt_tokens:
            what += f" behind about {probe.prompt_tokens} tokens of background"
        users = ", ".join(map(str, probe.concurrency))
        yield from _item(
            f"{name}: {what}, at most {probe.sampling.max_new_tokens} tokens of answer, at {users} "
            f"user{'s' if users != '1' else ''}"
        )
    rungs = rungs_of(question.sweep.probes)
    for name, client in clients_of(question.sweep.probes).items():
        yield from _item(f"{name}: {client.words(rungs[client.of])}")
    for name, profile in profiles_of(question.sweep.probes).items():
        users = ", ".join(map(str, profile.concurrency))
        yield from _item(
            f"{name}: after those, {profile.decode_steps} decode steps recorded with the engine's "
            f"profiler at {users} user{'s' if users != '1' else ''}; no figure of speed"
        )


def _touched(question: Question) -> Iterator[Text]:
    for patch in question.patches:
        kept = "" if question.sweep.keep_patch else "; put back after each trial"
        yield from _item(
            f"patch {patch.name}: {patch.package}/{patch.module}: {patch.class_name} gets "
            f"{', '.join(patch.method_names)} if it lacks them{kept}"
        )
    for name, host in question.hosts.items():
        what = (
            "every compute process of our own user (owns_gpus)"
            if host.owns_gpus
            else "only processes that an earlier trial of ours started"
        )
        yield from _item(f"{name}: would end {what}; others' processes are named and never touched")
        yield from _item(f"{name}: writes below {host.folder}")


def _item(text: str) -> Iterable[Text]:
    return _wrapped(text, first="  ", rest="    ")


def _trials(question: Question) -> Text:
    """One line a trial; as a rich table, ten thousand of them would take five seconds."""
    rows = [("#", "trial", "host", "intent")]
    rows += [(str(t.order), t.id, t.host, t.intent) for t in question.plan.trials]
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = (
        "  ".join([row[0].rjust(first), *map(str.ljust, row[1:], others)]).rstrip() for row in rows
    )
    head = next(lines)
    return Text("\n").join([Text(head, style="bold"), Text("\n".join(lines))])


def verdicts_text(
    comparisons: Sequence[Comparison], sentence: str, *, every_figure: bool = False
) -> RenderableType:
    """The tables of each class of hosts, and the sentence last, where the eye rests.

    Args:
        comparisons: What to show, one for each class.
        sentence: The decision.
        every_figure: All figures that got a verdict, not the leading one alone.
    """
    parts: list[RenderableType] = []
    for comparison in comparisons:
        if comparison.classes:
            parts.append(Text(f"On {comparison.host_class}", style="bold"))
        parts += _tables(comparison, every_figure=every_figure)
    return Group(*parts, Text(sentence, style="bold"))


def _tables(comparison: Comparison, *, every_figure: bool) -> list[RenderableType]:
    rows = [
        row
        for row in comparison_rows(comparison)
        if every_figure or row["figure"] == comparison.metrics[0]
    ]
    parts: list[RenderableType] = []
    for key in dict.fromkeys(_table_of(row) for row in rows):
        parts += [_verdicts(key, [row for row in rows if _table_of(row) == key]), Text("")]
    if not leading_cells(comparison) and comparison.problem:
        parts.append(Text(comparison.problem, style="yellow"))
    for found in comparison.findings:
        parts += _wrapped(f"{found.name}: {found.where}: {found.evidence}", style="yellow")
    if comparison.between_hosts is not None:
        style = "yellow" if comparison.between_hosts.odd else ""
        parts += _wrapped(f"hosts: {comparison.between_hosts.sentence}", style=style)
    return parts


def noise_text(floors: Sequence[Floor], sentence: str) -> RenderableType:
    """A host's own noise, and the smallest change that sweeps of four arms would find on it."""
    parts: list[RenderableType] = []
    for probe, metric in dict.fromkeys((floor.probe, floor.metric) for floor in floors):
        table = Table(
            title=f"{probe}: {metric}, noise from boot to boot; what four arms would find",
            title_justify="left",
            title_style="bold",
            box=None,
            pad_edge=False,
        )
        for head in ("users", "boots", "varies by", *(f"{blocks} blocks" for blocks in BLOCKS)):
            table.add_column(head, justify="right", no_wrap=True)
        for floor in floors:
            if (floor.probe, floor.metric) == (probe, metric):
                finds = (f"{size - 1:+.1%}" if size else "-" for size in floor.finds)
                table.add_row(
                    str(floor.concurrency), str(floor.boots), f"{floor.varies:.2%}", *finds
                )
        parts += [table, Text("")]
    return Group(*parts, Text(sentence, style="bold"))


def _table_of(row: dict[str, str]) -> tuple[str, str]:
    """Title and unit of the table that a row belongs to: one per baseline, one for all levels."""
    unit = row["value"].partition(" ")[2]
    same_arm = row["setting"].split(",")[0] == row["against"].split(",")[0]
    against = f"each arm at {row['against'].partition(', ')[2]}" if same_arm else row["against"]
    return f"{row['probe']}: {row['figure']} ({unit}) against {against}", unit


def _verdicts(key: tuple[str, str], rows: list[dict[str, str]]) -> Table:
    title, unit = key
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for head in _COLUMNS:
        left = head in {"setting", "verdict"}
        # In a narrow terminal words are broken; a figure that is cut short would be another one.
        table.add_column(head, justify="left" if left else "right", no_wrap=not left)
    for row in rows:
        verdict = Text(row["verdict"], style=_COLOUR.get(row["verdict"].split()[0], ""))
        # Levels that both share stand in the title.
        shared = row["against"].partition(",")
        setting = row["setting"].removesuffix("".join(shared[1:]) or "\n")
        cells = [row[head].removesuffix(f" {unit}") for head in _COLUMNS[1:-1]]
        table.add_row(setting, *map(Text, cells), verdict)
    return table
