"""What of finished trials was our own time: from their records, kept samples and engine logs."""

from __future__ import annotations

import gzip
import json
import re
from datetime import datetime
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from tasks.comparison import setting_label
from tasks.report_tables import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tasks.record import TrialRecord

_RANK = re.compile(rb"^\[[^\]]*?\bTP(\d+)\b[^\]]*\]", re.MULTILINE)
_WHOLE = ("ok", "suspect")


class Share(NamedTuple):
    """Where the seconds of one trial went."""

    setting: str
    trial_s: float
    """Its stages together, and what lies between them (known to a second)."""
    start_s: float
    """wait_ready: the engine's start as we follow its log. Holds at most a poll of ours."""
    traffic_s: float
    """First request sent to last one done, warm-up and probes of speed."""
    profile_s: float
    """Probes of kind profile: load, recording and the reading of traces together."""
    tear_down_s: float
    """The engine's end, until its GPUs' memory is free."""
    own_s: float
    """All the rest."""
    log_bytes: int
    ranks: int
    """Ranks that wrote lines of their own into that log."""


def share_of(record: TrialRecord, folder: Path) -> Share:
    """Splits one attempt.

    Args:
        record: A measured one.
        folder: The attempt's, with ``samples`` and ``server.log``.
    """
    stages = {stage.name: stage.seconds for stage in record.stages}
    profiled = {f"probe:{profile.probe}" for profile in record.profiles}
    profile_s = sum(seconds for name, seconds in stages.items() if name in profiled)
    began, ended = map(datetime.fromisoformat, (record.started_at, record.ended_at))
    # both are whole seconds, so that the sum of the stages may be more
    trial_s = max((ended - began).total_seconds(), sum(stages.values()))
    traffic_s = sum(map(_traffic, sorted(folder.glob("samples/*.jsonl.gz"))))
    start_s, tear_down_s = stages.get("wait_ready", 0.0), stages.get("tear_down", 0.0)
    log = folder / "server.log"
    text = log.read_bytes() if log.is_file() else b""
    return Share(
        setting=setting_label(record.arm, record.levels),
        trial_s=trial_s,
        start_s=start_s,
        traffic_s=traffic_s,
        profile_s=profile_s,
        tear_down_s=tear_down_s,
        own_s=trial_s - start_s - traffic_s - profile_s - tear_down_s,
        log_bytes=len(text),
        ranks=len(set(_RANK.findall(text))),
    )


def _traffic(path: Path) -> float:
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return max(row["done"] for row in rows) - min(row["sent"] for row in rows) if rows else 0.0


def shares(records: Sequence[TrialRecord], run: Path) -> list[Share]:
    """Of every measured trial whose samples were kept."""
    folders = ((r, run / "trials" / f"{r.trial}.a{r.attempt}") for r in records)
    return [
        share_of(record, folder)
        for record, folder in folders
        if record.status in _WHOLE and any(folder.glob("samples/*.jsonl.gz"))
    ]


def share_table(found: Sequence[Share]) -> str:
    """Means over the trials of each setting, and over all of them."""
    groups: dict[str, list[Share]] = {}
    for share in found:
        groups.setdefault(share.setting, []).append(share)
    rows = [_row(name, group) for name, group in groups.items()]
    return table(
        (
            "setting",
            "trials",
            "trial",
            "engine's start",
            "traffic",
            "profile",
            "tear-down",
            "ours",
            "share",
            "log",
            "ranks in it",
        ),
        [*rows, _row("all", found)],
    )


def _row(name: str, group: Sequence[Share]) -> list[str]:
    def mean(values: Iterable[float]) -> str:
        return f"{fmean(values):.1f} s"

    ranks = sorted({share.ranks for share in group})
    return [
        name,
        str(len(group)),
        mean(s.trial_s for s in group),
        mean(s.start_s for s in group),
        mean(s.traffic_s for s in group),
        mean(s.profile_s for s in group),
        mean(s.tear_down_s for s in group),
        mean(s.own_s for s in group),
        f"{sum(s.own_s for s in group) / sum(s.trial_s for s in group):.1%}",
        f"{fmean(s.log_bytes for s in group) / 1000:,.0f} kB",
        " or ".join(map(str, ranks)),
    ]
