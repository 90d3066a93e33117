"""What is done for a run whose process is gone: its engines ended, its attempts recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from configs.host import Host
from configs.nodes import nodes_of
from flows.blocks import read_note
from flows.runs import of_flow_run, read_run_plan, read_run_sweep
from flows.skips import reconcile, unfinished
from infra.connect import connect
from infra.errors import WorldError
from infra.places import runs_folder
from infra.run_locks import RunHeld, lane
from infra.store import RunFolder, Store, read_json
from infra.tracking import Tracker, tracking_uri
from tasks.contact import IF_KILLED
from tasks.patch_host import put_back
from tasks.publish import publish_missing
from tasks.tear_down import forget_secrets, has_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from infra.host_agent import HostAgent

_GRACE_S = 5.0
_GPU_WAIT_S = 60.0


def clean_up_after(flow_run: str, say: Callable[[str], None]) -> None:
    """Ends what a dead flow run left on its hosts, records its attempts, publishes them.

    Finds everything from the run folder, since it runs in another process. What cannot be done
    (the host does not answer) is said; the lease on the host does it then.
    """
    run = of_flow_run(Store(runs_folder()), flow_run)
    if run is None:
        say(f"flow run {flow_run} has no run folder: it ended before it touched a host")
        return
    clean_up_run(run, say)


def clean_up_run(
    run: RunFolder,
    say: Callable[[str], None],
    *,
    reach: Callable[[Host], HostAgent] | None = None,
    tracker: Tracker | None = None,
) -> None:
    """The same for a run folder.

    Args:
        run: The run.
        say: Shows what is done.
        reach: How a host is reached; by its file, if nothing else is said.
        tracker: Where it is published; the MLflow of this machine, if nothing else is said.
    """
    for name, spec in read_json(run.path / "run.json").get("hosts", {}).items():
        host = Host.model_validate(spec)
        try:
            say(f"{name}: {end_on_host(run, host, reach or _reach)}")
        except WorldError as error:
            say(f"{name}: could not be cleaned ({error}); {IF_KILLED}")
    for text in reconcile(run):
        say(text)
    uri = tracking_uri()
    if tracker is None and uri is not None:
        tracker = Tracker(uri, note=say)
    if tracker is not None:
        publish_missing(run, tracker, say)


def clean_up_lane(run: RunFolder, place: str, say: Callable[[str], None]) -> None:
    """The same for what one lane of a run left at its place, unless another lane is at work there."""
    plan = read_run_plan(run)
    blocks = {block for block, at in read_note(run).taken.items() if at == place}
    mine = {trial.id for trial in plan.trials if trial.block in blocks}
    hosts = read_json(run.path / "run.json").get("hosts", {})
    try:
        with lane(run.path, place):
            for name in nodes_of(place):
                try:
                    host = Host.model_validate(hosts[name])
                    say(f"{name}: {end_on_host(run, host, _reach, mine)}")
                except WorldError as error:
                    say(f"{name}: could not be cleaned ({error}); {IF_KILLED}")
            for text in reconcile(run, mine):
                say(text)
    except RunHeld:
        say(f"{place}: another lane is at work there")


def _reach(host: Host) -> HostAgent:
    return connect(host, patience_s=20.0)


def end_on_host(
    run: RunFolder,
    host: Host,
    reach: Callable[[Host], HostAgent] = _reach,
    of: Collection[str] | None = None,
) -> str:
    """Ends every process of a run's unfinished attempts on a host, and releases its claim.

    What an attempt changed in the engine's source is put back.

    Args:
        run: The run.
        host: The host.
        reach: How it is reached.
        of: Trials; None: all. Two hosts may be containers that see each other's processes, so
            attempts in flight elsewhere must not be named.
    """
    markers = [run.marker_on(folder, host.name) for folder in unfinished(run, of)]
    agent = reach(host)
    try:
        ended = 0
        for marker in markers:
            folder = f"{agent.root}/trials/{marker}"
            agent.make_folder(folder)
            result = _reap(agent, folder, marker, host)
            ended += len(result.get("signalled", []))
            if has_secrets(read_run_sweep(run), host):
                forget_secrets(agent, folder)
        restored = put_back(agent) if markers else ()
        agent.call("release", root=agent.root, holder=run.holder)
    finally:
        agent.close()
    if not markers:
        return "nothing was running"
    return "; ".join([f"{ended} processes of {len(markers)} attempts ended", *restored])


def _reap(agent: Any, folder: str, marker: str, host: Host) -> dict[str, Any]:
    return dict(
        agent.job(
            folder,
            "aftermath",
            "reap",
            {
                "groups": [],
                "markers": [marker],
                "processes": [],
                "grace_s": _GRACE_S,
                "port": None,
                "gpu_wait_s": _GPU_WAIT_S,
                "free_below_mib": host.free_below_mib,
            },
            timeout_s=_GRACE_S + _GPU_WAIT_S + 30,
        )
    )
