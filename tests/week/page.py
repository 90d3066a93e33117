"""docs/evidence/week.md: the week as it was seen."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tests.week.quick import REAPER_S, SILENT_S
from tests.week.site import HOSTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.week.judge import Night, Said
    from tests.week.quick import Week
    from tests.week.site import Site
    from tests.week.story import Story

FILE = Path(__file__).parents[2] / "docs" / "evidence" / "week.md"
_INTRO = """\
# A week of nights

    make week

plays seven nights in fast motion and writes this page. Everything in it is a real process: PostgreSQL, a Prefect server and an
MLflow server on it, two workers ([postgresql.md](../postgresql.md): the commands and the environment of `infra/systemd`), and
{hosts} [rehearsal hosts](../rehearsal.md) of one class, each over SSH with a host file of its own. `eagle3-sweep deploy` deploys `prefect.yaml`
as it is shipped, with other clocks: a night every {apart} s by Prefect's own schedule, a look over the hosts before and a message after each,
the reaper every {reaper} s (a run that cannot be looked up is dead after {silent} s). The sweep has three arms and {hosts} blocks. In the
second night that begins, the worker of the sweep and everything below it gets SIGKILL in the middle of a probe, and the worker comes
back one night later; in the fourth a host reboots in the middle of a probe; in the fifth there is no MLflow from its begin until its morning.

It is judged from outside: run folders and hosts' state files on the disk, rows in both databases, processes and pretended GPU memory of
the machine, and a local receiver of webhooks.
"""


def write(
    week: Week, site: Site, story: Story, found: Sequence[Night], said: Sequence[Said]
) -> Path:
    """Writes the page; returns where."""
    FILE.write_text("\n".join([*_lines(week, site, story, found, said), ""]), encoding="utf-8")
    return FILE


def _lines(
    week: Week, site: Site, story: Story, found: Sequence[Night], said: Sequence[Said]
) -> list[str]:
    intro = _INTRO.format(
        hosts={4: "four"}.get(len(HOSTS), len(HOSTS)),
        apart=week.apart_s,
        reaper=REAPER_S,
        silent=SILENT_S,
    )
    held = sum(one.holds for one in said)
    versions = ", ".join(f"{name} {version(name)}" for name in ("prefect", "mlflow"))
    where = f"Python {platform.python_version()}, {versions}, {site.database.version}"
    return [
        intro,
        f"{datetime.now(UTC):%d %B %Y}, {where}: **{held} of {len(said)} held.**",
        "",
        "| what must hold | | found |",
        "|---|---|---|",
        *(f"| {s.what} | {'held' if s.holds else '**broken**'} | {s.found} |" for s in said),
        "",
        "## The nights",
        "",
        "| night | planned (UTC) | begun | ended | begun how often | state | trials measured | attempts |",
        "|---|---|---|---|---|---|---|---|",
        *map(_row, found),
        "",
        "What happened, as it was noted while it did:",
        "",
        *(f"- {at:%H:%M:%S} {text}" for at, text in story.told),
        "",
        "## The messages",
        "",
        *(f"- {_message(message)}" for message in site.hook.messages),
    ]


def _row(night: Night) -> str:
    return (
        f"| {night.number} | {night.planned:%H:%M:%S} | {night.begun:%H:%M:%S} | "
        f"{night.ended:%H:%M:%S} | {night.begins} | {night.state} | "
        f"{night.measured} of {night.planned_trials} | {night.attempts} |"
    )


def _message(message: dict[str, str]) -> str:
    """Subject, and the body without addresses, which are of that day only."""
    lines = [line for line in message["body"].splitlines() if "http://" not in line]
    return f"*{message['subject']}*: {' / '.join(lines)}"
