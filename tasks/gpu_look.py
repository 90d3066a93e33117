"""A look at the GPUs from beside a running probe: how fast they run, and who else is on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from configs.values import Value
from tasks.check_host import IDLE_BIT
from tasks.cleanup import plan_cleanup
from tasks.process_list import read_facts
from tasks.smi_csv import GpuApp, GpuRow, read_apps, read_gpus
from tasks.smi_messages import find_trouble

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tasks.cleanup import Named


class Stranger(Value):
    """A process on a GPU that is not the trial's."""

    pid: int
    """Process id."""
    words: str
    """Name, pid, owner and GPUs, for people."""
    hidden: bool = False
    """In no process list of this host: of another PID namespace, or gone since."""


class GpuLook(Value):
    """What `nvidia-smi` said while the last requests of a load ran (infra/agent/drive.py)."""

    gpus: tuple[GpuRow, ...] = ()
    """One row per GPU, under load."""
    strangers: tuple[Stranger, ...] = ()
    """Who computes on a GPU and is not the trial."""
    trouble: str | None = None
    """Why the look says nothing of clocks and strangers."""


def read_look(
    raw: Mapping[str, Any] | None, *, marker: str, uid: int | None, user: str | None
) -> GpuLook | None:
    """From the agent's raw texts to values; None if it did not look.

    Args:
        raw: ``gpus`` and ``apps``, the answers of nvidia-smi, and ``processes``: those on the
            GPUs and all above them.
        marker: of the running trial: its processes, and what they started, are no strangers.
        uid: our user on the host.
        user: its name.
    """
    if raw is None:
        return None
    rows = read_gpus(raw["gpus"]["stdout"])
    apps = read_apps(raw["apps"]["stdout"])
    processes = read_facts(raw["processes"])
    # The same division as before a launch, with this trial's marker as the one that is ours.
    plan = plan_cleanup(processes, apps, markers={marker}, own_uid=uid, own_user=user)
    seen = [
        Stranger(pid=one.pid, words=_words(one, _cards(one.pid, apps, rows)))
        for one in plan.foreign
    ]
    hidden = [
        Stranger(
            pid=pid,
            words=f"pid {pid}, in no process list here, on {_cards(pid, apps, rows)}",
            hidden=True,
        )
        for pid in plan.unknown
    ]
    return GpuLook(gpus=rows, strangers=(*seen, *hidden), trouble=_trouble(raw, rows))


def _trouble(raw: Mapping[str, Any], rows: Sequence[GpuRow]) -> str | None:
    for answer in (raw["gpus"], raw["apps"]):
        if answer["error"]:
            return f"nvidia-smi: {answer['error']}"
        found = find_trouble(f"{answer['stdout']}\n{answer['stderr']}", answer["exit"] or 0)
        if found is not None:
            return found.message
    masks = [row.clock_reasons for row in rows if row.clock_reasons is not None]
    if masks and all(mask & IDLE_BIT for mask in masks):
        return "the look came when every GPU was idle"
    return None


def arrivals(looks: Iterable[tuple[str, GpuLook | None]]) -> tuple[str, ...]:
    """Who came onto the GPUs during a trial, in words, and where it was seen.

    They were free before the launch. In a container nvidia-smi may number the engine's own
    processes as the host does, so that nobody here knows them. Hidden ones are therefore
    strangers only if the first look did not have them: one that came before it, from another
    namespace, is not told apart.

    Args:
        looks: the places of the measurements ("load c8") with their looks, in order.
    """
    seen: dict[str, list[str]] = {}
    engine: set[int] | None = None
    for place, look in looks:
        if look is None:
            continue
        if engine is None:
            engine = {one.pid for one in look.strangers if one.hidden}
        for one in look.strangers:
            if not (one.hidden and one.pid in engine):
                seen.setdefault(one.words, []).append(place)
    return tuple(f"{words}, at {', '.join(places)}" for words, places in seen.items())


def _words(named: Named, cards: str) -> str:
    return (
        f"{named.comm or 'a process'} (pid {named.pid}, user {named.user or 'unknown'}) on {cards}"
    )


def _cards(pid: int, apps: Iterable[GpuApp], rows: Sequence[GpuRow]) -> str:
    """The GPUs that a process computes on, by number where the list of GPUs has them."""
    index = {row.uuid: row.index for row in rows}
    uuids = dict.fromkeys(app.gpu_uuid for app in apps if app.pid == pid)
    numbers = sorted(index[uuid] for uuid in uuids if uuid in index)
    strange = [str(uuid) for uuid in uuids if uuid not in index]
    return f"GPU {', '.join([*map(str, numbers), *strange])}"
