"""How plans, verdicts and warnings look in a terminal of 80 columns or more."""

from __future__ import annotations

import difflib
import shlex
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from configs.rules import arm_flags, looks_secret
from tasks.decision import leading_cells
from tasks.launch import engine_argv, engine_env, flag_words
from tasks.report_tables import comparison_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from flows.question import Question
    from tasks.comparison import Comparison

_COLOUR = {"better": "green", "worse": "red", "same": "default", "undecided": "yellow"}
_COLUMNS = ("setting", "users", "value", "reference", "change", "interval", "verdict")


def plan_text(question: Question) -> RenderableType:
    """A plan: every trial, every command, what differs from the baseline, what would be touched."""
    sweep, plan = question.sweep, question.plan
    parts: list[RenderableType] = [
        Text(f"{sweep.name}: {sweep.question}", style="bold"),
        Text(
            f"{len(plan.trials)} trials in {sweep.blocks} blocks, seed {sweep.seed}, "
            f"plan {plan.digest}, on {', '.join(question.hosts)}"
        ),
        Text("\nSettings", style="bold"),
    ]
    parts += _settings(question)
    parts += [Text("\nTouched on the host", style="bold"), *_touched(question)]
    parts += [Text("\nTrials, in this order", style="bold"), _trials(question)]
    parts += [Text(f"warning: {warning}", style="yellow") for warning in question.warnings]
    return Group(*parts)


def _settings(question: Question) -> Iterator[Text]:
    sweep = question.sweep
    seen: set[tuple[str, ...]] = set()
    for trial in sorted(question.plan.trials, key=lambda t: (t.arm != sweep.baseline, t.order)):
        key = (trial.arm, *trial.levels.values())
        if key in seen:
            continue
        seen.add(key)
        host = question.hosts[trial.host]
        name = "+".join(key)
        yield Text(f"\n{name}" + (" (baseline)" if trial.arm == sweep.baseline else ""))
        env = engine_env(sweep, host, trial.arm, trial.levels)
        shown = {k: "***" if looks_secret(k) else v for k, v in env.items()}
        shown |= dict.fromkeys([*host.env_from, *sweep.engine.env_from], "***")
        words = [f"{k}={shlex.quote(v)}" for k, v in shown.items()]
        argv = engine_argv(sweep, host, trial.arm, trial.levels, port="<free port>")
        yield Text("  " + " ".join([*words, shlex.join(argv)]).replace("'<free port>'", "PORT"))
        for line in _difference(question, trial.arm, trial.levels):
            yield Text(f"  {line}", style="green" if line.startswith("+") else "red")


def _difference(question: Question, arm: str, levels: dict[str, str]) -> list[str]:
    """Flags and environment against the baseline under the factors' first levels."""
    sweep = question.sweep
    first = {factor: next(iter(of)) for factor, of in sweep.factors.items()}
    host = next(iter(question.hosts.values()))

    def lines(of_arm: str, under: dict[str, str]) -> list[str]:
        env = engine_env(sweep, host, of_arm, under)
        flags = arm_flags(sweep, of_arm, under)
        shown = [" ".join(flag_words({flag: value})) for flag, value in flags.items()]
        return sorted(f"{k}={v}" for k, v in env.items()) + sorted(filter(None, shown))

    changed = difflib.ndiff(lines(sweep.baseline, first), lines(arm, levels))
    return [line for line in changed if line[0] in "+-"]


def _touched(question: Question) -> Iterator[Text]:
    for patch in question.patches:
        yield Text(
            f"  patch {patch.name}: {patch.package}/{patch.module}: {patch.class_name} gets "
            f"{', '.join(patch.method_names)} if it lacks them"
            + ("" if question.sweep.keep_patch else "; put back after each trial")
        )
    for name, host in question.hosts.items():
        what = (
            "every compute process of our own user (owns_gpus)"
            if host.owns_gpus
            else "only processes that an earlier trial of ours started"
        )
        yield Text(f"  {name}: would end {what}; others' processes are named and never touched")
        yield Text(f"  {name}: writes below {host.folder}")


def _trials(question: Question) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in ("#", "trial", "host", "intent"):
        table.add_column(head)
    for trial in question.plan.trials:
        table.add_row(str(trial.order), trial.id, trial.host, trial.intent)
    return table


def verdict_text(comparison: Comparison, sentence: str) -> RenderableType:
    """The comparison table, and the sentence last, where the eye rests."""
    rows = comparison_rows(comparison)
    parts: list[RenderableType] = []
    keys = dict.fromkeys((row["probe"], row["figure"], row["against"]) for row in rows)
    for probe, figure, against in keys:
        table = Table(title=f"{probe}: {figure} against {against}", title_justify="left", box=None)
        for head in _COLUMNS:
            table.add_column(head, justify="left" if head in {"setting", "verdict"} else "right")
        for row in rows:
            if (row["probe"], row["figure"], row["against"]) == (probe, figure, against):
                verdict = Text(row["verdict"], style=_COLOUR.get(row["verdict"].split()[0], ""))
                table.add_row(*(row[head] for head in _COLUMNS[:-1]), verdict)
        parts += [table, Text("")]
    if not leading_cells(comparison) and comparison.problem:
        parts.append(Text(comparison.problem, style="yellow"))
    parts.append(Text(sentence, style="bold"))
    return Group(*parts)
