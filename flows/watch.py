"""`eagle3-sweep watch`: a run as it goes, from its folder, without a hand in it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from configs.host import Host
from configs.nodes import nodes_of
from flows.finding import SweepName, find_run, mistake
from flows.show_watch import view_text
from flows.terminal import console
from flows.watched import Watched
from infra.errors import WorldError
from infra.store import read_json
from tasks.smi_csv import QUERY_GPU, read_gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flows.watched import View
    from infra.host_agent import HostAgent
    from infra.store import RunFolder
    from tasks.smi_csv import GpuRow

_PAUSE_S = 1.0
_BEGIN_S = 60.0
_WAITS = "Nobody works on it. Waiting a minute for a run to begin; Ctrl-C ends."
_GPUS_S = 15.0
_PATIENCE_S = 1.0
_SMI = ["nvidia-smi", f"--query-gpu={','.join(QUERY_GPU)}", "--format=csv,noheader,nounits"]
_ROOM = 40


def watch(
    sweep: SweepName,
    *,
    run_number: Annotated[int | None, typer.Option("--run", help="which run; the latest")] = None,
    once: Annotated[bool, typer.Option("--once", help="one look, as plain text")] = False,
    gpus: Annotated[
        bool, typer.Option("--gpus", help="also ask the host's nvidia-smi, every 15 s")
    ] = False,
) -> None:
    """Watch a run as it goes: trials, stage, load, tokens per second, time left."""
    folder = find_run(sweep, run_number)
    if not _is_made(folder):
        mistake(f"{folder.id} is just being made: ask again in a moment")
    if once or not console.is_terminal:
        watched, cards = _eyes(folder, gpus=gpus)
        view = watched.look()
        console.print(view_text(view, _ROOM, cards.look(view) if cards else {}))
        return
    until = time.monotonic() + (_BEGIN_S if run_number is None else 0)
    with suppress(KeyboardInterrupt):  # it only looked: nothing was stopped
        _follow(folder, lambda: find_run(sweep, None), until, gpus=gpus)


def _follow(
    folder: RunFolder, latest: Callable[[], RunFolder], until: float, *, gpus: bool
) -> None:
    """Shows a run until nobody works on it; before that, waits for one to begin.

    A run that was asked for a moment ago is not there yet: its worker takes some seconds.

    Args:
        folder: The run.
        latest: The sweep's latest one, which may be another by then.
        until: Monotonic seconds until which it is waited for.
        gpus: Whether the hosts' cards are looked at.
    """
    watched, cards = _eyes(folder, gpus=gpus)
    begun = False
    with Live(console=console, auto_refresh=False) as shown:
        while True:
            view = watched.look()
            goes = view.conductor is not None and len(view.done) < view.planned
            begun = begun or goes
            waits = not begun and time.monotonic() < until
            text = view_text(view, console.size.height - waits, cards.look(view) if cards else {})
            shown.update(Group(text, Text(_WAITS)) if waits else text, refresh=True)
            if not goes and not waits:
                return
            time.sleep(_PAUSE_S)
            newer = latest() if waits else folder
            if newer.path != folder.path and _is_made(newer):
                folder, begun = newer, True
                watched, cards = _eyes(folder, gpus=gpus)


def _is_made(folder: RunFolder) -> bool:
    return (folder.path / "run.json").exists()  # the last that is written as a run begins


def _eyes(folder: RunFolder, *, gpus: bool) -> tuple[Watched, _Cards | None]:
    return Watched(folder), _Cards(folder) if gpus else None


class _Cards:
    """The cards of the hosts that measure, looked at seldom."""

    def __init__(self, folder: RunFolder) -> None:
        self._hosts = read_json(folder.path / "run.json").get("hosts", {})
        self._agents: dict[str, HostAgent] = {}
        self._seen: dict[str, tuple[float, Sequence[GpuRow] | str]] = {}

    def look(self, view: View) -> dict[str, Sequence[GpuRow] | str]:
        """Host -> what nvidia-smi says there; a sentence why it says nothing."""
        hosts = [node for one in view.doing for node in nodes_of(one.host)]
        return {host: self._look(host) for host in dict.fromkeys(hosts)}

    def _look(self, host: str) -> Sequence[GpuRow] | str:
        if host in self._seen and time.monotonic() - self._seen[host][0] < _GPUS_S:
            return self._seen[host][1]
        try:
            said = self._agent(host).shell.run(_SMI, timeout_s=10)
            rows: Sequence[GpuRow] | str = read_gpus(said.out) or "nvidia-smi shows no GPU"
        except WorldError as error:
            rows = f"GPUs unknown: {error}"
        self._seen[host] = (time.monotonic(), rows)
        return rows

    def _agent(self, name: str) -> HostAgent:
        from infra.connect import connect  # with Fabric, which a look at the folder needs not

        if name not in self._agents:
            host = Host.model_validate(self._hosts[name])
            self._agents[name] = connect(host, patience_s=_PATIENCE_S)
        return self._agents[name]
