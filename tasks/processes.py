"""Whose processes are whose on a shared host: a launched tree by identity, never by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.process_list import Process, same_start, started_before

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

#: How long a killed process may still be listed before it is stuck in the driver. Ports and
#: pinned memory have been seen held for 30 s after a kill (sglang, network.py:71).
KILL_PATIENCE_S = 45.0
#: How long a server may take to drain after SIGTERM.
TERM_GRACE_S = 60.0


@dataclass(frozen=True)
class Leader:
    """The process that was launched, as it was written down: its pid and start are its identity."""

    pid: int
    start: int | str | None = None
    pgid: int | None = None
    sid: int | None = None

    @property
    def leads_group(self) -> bool:
        """Whether the process group is its own: only then may the group be signalled."""
        return self.pgid in (None, self.pid)

    def leads(self, process: Process) -> bool:
        """Whether a process is in the session or group that this leader opened."""
        in_group = self.leads_group and process.pgid == self.pid
        return in_group or (self.sid in (None, self.pid) and process.sid == self.pid)


@dataclass(frozen=True)
class Split:
    """A process list, divided: ours and alive, ours and dead, everyone else's."""

    own: tuple[Process, ...]
    zombies: tuple[Process, ...]
    foreign: tuple[Process, ...]


@dataclass(frozen=True)
class TeardownStep:
    """What to do next with a launched tree.

    ``action`` is ``none``, ``term_group_N``, ``kill_group_N``, ``term_pids``, ``kill_pids``,
    ``wait``, ``wait_gpu_free``, ``give_up_report``, ``refuse_foreign`` or
    ``report_other_namespace``.
    """

    action: str
    reason: str | None
    released: bool
    foreign_gpu_pids: tuple[int, ...]


def belongs_to(process: Process, user: str | None, uid: int | None) -> bool:
    """Whether a process is this user's. ps cuts long names (``name+``)."""
    if uid is not None and process.uid is not None:
        return process.uid == uid
    if user is None or process.user is None:
        return False
    shown = process.user
    return shown == user or (shown.endswith("+") and len(shown) > 1 and user.startswith(shown[:-1]))


def launched_by(
    processes: Sequence[Process],
    leader: Leader,
    *,
    user: str | None = None,
    uid: int | None = None,
) -> set[int]:
    """The pids of a launched tree, dead ones too.

    Ours is the leader itself if pid *and* start agree, what is in the session or group that it
    opened, and every child of those, all of the same user. If the leader's pid now belongs to a
    process with another start, it was given away again; then nothing of that group is ours,
    because the kernel gives no number away that is still in use as a group or session. Where
    one of the two starts is not known, the pid alone proves nothing either.
    """
    here = {process.pid: process for process in processes}
    holder = here.get(leader.pid)
    if holder is not None and not same_start(holder.start, leader.start):
        return set()

    def ours(process: Process) -> bool:
        return belongs_to(process, user, uid)

    roots = {
        p.pid
        for p in processes
        if ours(p)
        and (p.pid == leader.pid or leader.leads(p))
        and (p.pid == leader.pid or not started_before(p.start, leader.start))
    }
    return with_children(processes, roots, ours)


def with_children(
    processes: Iterable[Process], roots: Collection[int], allowed: Callable[[Process], bool]
) -> set[int]:
    """The roots and every process below them that ``allowed`` lets in."""
    below: dict[int, list[Process]] = {}
    for process in processes:
        if process.ppid is not None and allowed(process):
            below.setdefault(process.ppid, []).append(process)
    found, waiting = set(roots), list(roots)
    while waiting:
        for child in below.get(waiting.pop(), []):
            if child.pid not in found:
                found.add(child.pid)
                waiting.append(child.pid)
    return found


def split_by_leader(
    processes: Sequence[Process], leader: Leader, *, user: str | None = None, uid: int | None = None
) -> Split:
    """Divide a process list by who descends from a launched process (see ``launched_by``)."""
    ours = launched_by(processes, leader, user=user, uid=uid)
    return Split(
        own=tuple(p for p in processes if p.pid in ours and not p.zombie),
        zombies=tuple(p for p in processes if p.pid in ours and p.zombie),
        foreign=tuple(p for p in processes if p.pid not in ours and not p.zombie),
    )


def teardown_step(
    split: Split,
    leader: Leader,
    *,
    gpu_pids: Collection[int] = (),
    gpu_free: bool | None = None,
    term_s_ago: float | None = None,
    kill_s_ago: float | None = None,
) -> TeardownStep:
    """What to do next so that a launched tree is gone and its GPUs are free.

    Args:
        split: the process list, divided.
        leader: whom we launched.
        gpu_pids: pids that compute on a GPU, as ``nvidia-smi`` names them.
        gpu_free: whether the GPUs' memory is released; None if not looked at.
        term_s_ago: seconds since SIGTERM was sent, None if it was not.
        kill_s_ago: seconds since SIGKILL was sent, None if it was not.
    """
    ours = {p.pid for p in (*split.own, *split.zombies)}
    listed = ours | {p.pid for p in split.foreign}
    hidden = sorted(set(gpu_pids) - listed)
    action, reason = _next_action(split, leader, term_s_ago, kill_s_ago)
    if hidden and action != "give_up_report":
        action, reason = "report_other_namespace", _hidden(hidden)
    elif action == "none" and set(gpu_pids) - ours:
        names = ", ".join(f"{p.pid} ({p.user})" for p in split.foreign if p.pid in gpu_pids)
        action, reason = "refuse_foreign", f"GPUs are held by processes of others: {names}"
    elif action == "none" and gpu_free is False:
        action, reason = "wait_gpu_free", "no process of ours is left, GPU memory is still held"
    return TeardownStep(
        action=action,
        reason=reason,
        released=not split.own and gpu_free is not False and not hidden,
        foreign_gpu_pids=tuple(sorted(set(gpu_pids) - ours)),
    )


def _next_action(
    split: Split, leader: Leader, term_s_ago: float | None, kill_s_ago: float | None
) -> tuple[str, str | None]:
    if not split.own:
        return "none", None
    if kill_s_ago is not None:
        if kill_s_ago < KILL_PATIENCE_S:
            return "wait", f"{kill_s_ago:g} s since SIGKILL"
        return "give_up_report", _stuck(split.own, kill_s_ago)
    stopped = all(p.state.startswith(("T", "t")) for p in split.own)
    if stopped or (term_s_ago is not None and term_s_ago >= TERM_GRACE_S):
        return f"kill_{_whom(leader)}", None  # SIGTERM does not reach a stopped process
    if term_s_ago is not None:
        return "wait", f"{term_s_ago:g} s since SIGTERM"
    return f"term_{_whom(leader)}", None


def _whom(leader: Leader) -> str:
    return f"group_{leader.pid}" if leader.leads_group else "pids"


def _stuck(own: Sequence[Process], kill_s_ago: float) -> str:
    asleep = [p.pid for p in own if p.state.startswith("D")]
    how = f"in uninterruptible sleep ({asleep[0]})" if asleep else "running"
    return (
        f"still {how} {kill_s_ago:g} s after SIGKILL: stuck in the driver, "
        "the host needs a reboot (a container a restart)"
    )


def _hidden(pids: Sequence[int]) -> str:
    return (
        f"GPU memory is held by {', '.join(map(str, pids))}, not in the process list: "
        "another PID namespace (the host or another container), not to be killed from here"
    )
