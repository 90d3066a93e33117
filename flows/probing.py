"""The probes of a trial, one concurrency after another; what is done stays known if one fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.probe import clients_of, rungs_of, streams_of
from tasks.client_run import Check, client_level
from tasks.drive import probe_level
from tasks.profile_run import profile_level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from configs.probe import Profile, Stream
    from configs.sweep import Sweep
    from tasks.client_record import ClientRun
    from tasks.drive import Probed, Server, Text
    from tasks.profile_record import StepProfile

    Texts = Mapping[int, list[Text]]


def climb(
    server: Server, name: str, probe: Stream, texts: Texts, keep: Callable[[Probed], None]
) -> str:
    """Measures one probe at each of its concurrencies."""
    for level in probe.concurrency:
        keep(probe_level(server, name, probe, texts[level], level))
    return f"{len(probe.concurrency)} levels"


def checks_of(sweep: Sweep, release: str | None) -> list[Check]:
    """The cross-checks that a sweep asks for, in order.

    Args:
        sweep: the question.
        release: of the engine that the trial runs on; None: not known.
    """
    rungs = rungs_of(sweep.probes)
    found = clients_of(sweep.probes).items()
    return [Check(name, probe, rungs[probe.of], release) for name, probe in found]


def cross_check(
    server: Server, check: Check, texts: Texts, keep: Callable[[ClientRun], None]
) -> str:
    """Has the engine's own client repeat another probe, at each of its concurrencies."""
    said = []
    for level in check.levels():
        run = client_level(server, check, texts[level], level)
        keep(run)
        said.append(f"c{level}: {run.trouble or run.tool}")
    return "; ".join(said)


def look_inside(
    server: Server, name: str, probe: Profile, texts: Texts, keep: Callable[[StepProfile], None]
) -> str:
    """Records some decode steps at each of a profile's concurrencies."""
    said = []
    for level in probe.concurrency:
        seen = profile_level(server, name, probe, texts[level], level)
        keep(seen)
        said.append(f"c{level}: {seen.trouble or f'{seen.steps} steps'}")
    return "; ".join(said)


def longest(sweep: Sweep, texts: Mapping[str, Texts]) -> dict[str, tuple[Stream, list[Text]]]:
    """What each probe is warmed up with: its longest prompts, at its highest concurrency."""
    found = {}
    for name, whole in streams_of(sweep.probes).items():
        rung, probe = max(whole.rungs(name).items(), key=lambda item: item[1].prompt_tokens)
        found[name] = (probe, texts[rung][max(texts[rung])])
    return found
