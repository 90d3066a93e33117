"""Plans the clean-up before a launch: what may be reaped, what must be refused and named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.values import Value
from tasks.processes import Leader, belongs_to, launched_by, with_children

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from tasks.process_list import Process
    from tasks.smi_csv import GpuApp


class Named(Value):
    """One process, named so that it can be found again and recognised."""

    pid: int
    """Process id."""
    start: int | str | None = None
    """Start: ticks since boot, or the start time of ps."""
    pgid: int | None = None
    """Process group."""
    sid: int | None = None
    """Session."""
    user: str | None = None
    """Owner."""
    comm: str = ""
    """Command name, cut to 15 characters by the kernel."""
    why: str = ""
    """Why it is in this list."""


class CleanupPlan(Value):
    """What to reap, and what forbids a launch."""

    reap: tuple[Named, ...] = ()
    """Processes to end, each by pid and start."""
    foreign: tuple[Named, ...] = ()
    """Processes on the GPUs that are not ours to end."""
    unknown: tuple[int, ...] = ()
    """Pids on the GPUs that no process list of this host shows."""
    zombies: tuple[int, ...] = ()
    """Dead processes of ours: they hold nothing, nobody waits for them."""
    reasons: tuple[str, ...] = ()
    """One sentence for each thing that forbids a launch."""

    @property
    def refused(self) -> bool:
        """Whether GPUs stay held after everything that may be reaped is gone."""
        return bool(self.foreign or self.unknown)


def plan_cleanup(
    processes: Sequence[Process],
    gpu_apps: Iterable[GpuApp],
    *,
    leaders: Sequence[Leader] = (),
    markers: Collection[str] | None = None,
    current: str | None = None,
    own_uid: int | None = None,
    own_user: str | None = None,
    owns_gpus: bool = False,
) -> CleanupPlan:
    """Decide what an earlier trial of ours left behind, and what else holds GPUs.

    By default only processes that a trial of ours started go: those with our marker in their
    environment, and the trees of recorded leaders. With ``owns_gpus`` every compute process of our
    own user goes too, with its children and the engine launcher above it. Never another user's.

    Args:
        processes: the host's processes (at least our own and those on the GPUs).
        gpu_apps: what computes on the GPUs.
        leaders: engines and supervisors from state files of this boot; a state file of an earlier
            boot names nobody and must be left out.
        markers: trial markers that count as ours; None: every marker does.
        current: the marker of the running trial, whose processes are left alone.
        own_uid: our user on the host.
        own_user: its name, where the list has no uids.
        owns_gpus: the host file's ``owns_gpus``.
    """
    why: dict[int, str] = {}

    def ours(process: Process) -> bool:
        spared = current is not None and process.marker == current
        return belongs_to(process, own_user, own_uid) and not spared

    def take(pids: Iterable[int], reason: str) -> None:
        for pid in pids:
            why.setdefault(pid, reason)

    for leader in leaders:
        tree = launched_by(processes, leader, user=own_user, uid=own_uid)
        take((p.pid for p in processes if p.pid in tree and ours(p)), "tree of an earlier trial")
    marked = {
        p.pid
        for p in processes
        if p.marker is not None and ours(p) and (markers is None or p.marker in markers)
    }
    sessions = {p.pid for p in processes if p.pid in marked and p.sid == p.pid}
    marked |= {p.pid for p in processes if p.sid in sessions and ours(p)}
    take(with_children(processes, marked, ours), "marker of an earlier trial")
    on_gpu = {app.pid for app in gpu_apps}
    if owns_gpus:
        computing = {p.pid for p in processes if p.pid in on_gpu and ours(p)}
        launchers = _launchers_above(processes, computing, ours_only=ours)
        take(with_children(processes, computing | launchers, ours), "this host's GPUs are ours")
    return _plan(processes, on_gpu, why, current)


def _launchers_above(
    processes: Sequence[Process], computing: Collection[int], ours_only: Callable[[Process], bool]
) -> set[int]:
    """Engine processes above the computing ones: they keep the port, and start them again."""
    here = {p.pid: p for p in processes}
    found: set[int] = set()
    for pid in computing:
        above = here.get(here[pid].ppid or 0)
        while above is not None and above.engine and ours_only(above) and above.pid not in found:
            found.add(above.pid)
            above = here.get(above.ppid or 0)
    return found


def _plan(
    processes: Sequence[Process],
    on_gpu: Collection[int],
    why: dict[int, str],
    current: str | None,
) -> CleanupPlan:
    reap, foreign, zombies = [], [], []
    for process in processes:
        if process.pid in why:
            if process.zombie:
                zombies.append(process.pid)
            else:
                reap.append(_named(process, why[process.pid]))
        elif process.pid in on_gpu and not (current is not None and process.marker == current):
            foreign.append(_named(process, "computes on a GPU and was not started by us"))
    unknown = tuple(sorted(set(on_gpu) - {p.pid for p in processes}))
    reasons = [
        f"{n.comm or 'a process'} (pid {n.pid}, user {n.user or 'unknown'}) {n.why}"
        for n in foreign
    ]
    reasons += [
        f"pid {pid} computes on a GPU but is in no process list: another PID namespace"
        for pid in unknown
    ]
    return CleanupPlan(
        reap=tuple(reap),
        foreign=tuple(foreign),
        unknown=unknown,
        zombies=tuple(zombies),
        reasons=tuple(reasons),
    )


def _named(process: Process, why: str) -> Named:
    return Named(
        pid=process.pid,
        start=process.start,
        pgid=process.pgid,
        sid=process.sid,
        user=process.user,
        comm=process.comm,
        why=why,
    )
