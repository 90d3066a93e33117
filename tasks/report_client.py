"""The section of the report that sets the figures of the engines' own clients beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.client_beside import beside, without_figures
from tasks.comparison import setting_label
from tasks.decision import users
from tasks.markdown_text import inline
from tasks.report_tables import UNKNOWN, figure, seconds, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.client_beside import Line, Pair
    from tasks.client_record import ClientRun
    from tasks.record import TrialRecord

_INTRO = (
    "A cross-check: the load generator that comes with the engine repeated a probe on the host, "
    "after all measurements. Its figures enter no verdict; ours here are over the whole run, as "
    "its are, and not over the steady window. Each cell: ours / the client's, and how far the "
    "client's is from ours, as the mean over trials of the difference within each."
)

_HEADS = {
    "output_tok_s": "tokens/s",
    "ttft_s": "TTFT p50",
    "tpot_s": "TPOT p50",
    "accept_length": "accept length",
}
_TIMES = ("ttft_s", "tpot_s")


def client_section(records: Sequence[TrialRecord]) -> str:
    """Tables of both clients' figures, and what could not be matched; empty without any."""
    lines, bare = beside(records), without_figures(records)
    if not lines and not bare:
        return ""
    parts = [_INTRO]
    for probe in dict.fromkeys(line.run.probe for line in lines):
        mine = [line for line in lines if line.run.probe == probe]
        parts.append(f"Probe {inline(probe)}, beside {inline(mine[0].run.of)}.\n\n{_table(mine)}")
    parts += [text for text in (_notes(lines), _bare(bare)) if text]
    return "\n\n".join(parts)


def _table(lines: Sequence[Line]) -> str:
    return table(
        (
            "setting",
            "users",
            "client",
            *(_HEADS[pair.figure.name] for pair in lines[0].pairs),
            "trials",
        ),
        (
            (
                setting_label(line.arm, line.levels) + (" (baseline)" if line.baseline else ""),
                str(line.run.concurrency),
                _client(line.run),
                *(_cell(pair, line.offs.get(pair.figure.name)) for pair in line.pairs),
                str(line.trials),
            )
            for line in lines
        ),
    )


def _client(run: ClientRun) -> str:
    return f"{run.tool} {run.release or ''}".strip()


def _cell(pair: Pair, off: float | None) -> str:
    """Ours / theirs, and how far apart; a unit that both share stands once."""
    show = seconds if pair.figure.name in _TIMES else figure
    ours, theirs = show(pair.ours), show(pair.theirs)
    if off is None:
        return UNKNOWN if pair.ours is None else f"{ours} / {theirs}"
    number, _, unit = ours.partition(" ")
    if unit and theirs.endswith(f" {unit}"):
        ours = number
    apart = f"{off:+.1%}"
    return f"{ours} / {theirs}, {f'**{apart}**' if pair.beyond else apart}"


def _notes(lines: Sequence[Line]) -> str:
    """What each client did in another way, and whose acceptance it told; one line a client."""
    said: dict[str, None] = {}
    for line in lines:
        run = line.run
        other = "; ".join(run.unmatched)
        said[f"- {inline(_client(run))}, not matched: {inline(other)}"] = None
        told = run.usable
        if told is not None and told.accept_len is not None:
            said[
                f"- {inline(_client(run))}: its accept length is {inline(run.acceptance_of)}; ours is "
                "of the probe's own requests, all ranks"
            ] = None
        if told is not None:
            for warning in told.warnings:
                said[f"- {inline(_client(run))}: {inline(warning)}"] = None
    return "\n".join(said)


def _bare(found: Sequence[tuple[TrialRecord, ClientRun]]) -> str:
    """The runs without figures, and why."""
    return "\n".join(
        f"- {inline(record.trial)}, {inline(run.probe)} at {users(run.concurrency)}: no figures of "
        f"{inline(_client(run))}: {inline(_why(run))}"
        for record, run in found
    )


def _why(run: ClientRun) -> str:
    if run.trouble is not None:
        return run.trouble
    told = run.result
    if told is None:
        return "it left no result"
    return f"its result is not usable: {told.reason} ({told.completed} of {run.requests} came back)"
