"""A step on every node of a place: at once, named where it fails, never beside the next one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from configs.plan import make_plan
from configs.read import read_host, read_sweep
from infra.errors import AgentRefusal, ContactLost
from infra.masking import Mask
from infra.store import TrialFolder
from tasks.nodes import on_each
from tasks.venue import Site, StageFailedError, failed
from tests.agent_host import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Of three nodes; no step here touches a host."""
    sweep, host = read_sweep("rehearsal"), read_host("rehearsal")
    trial = make_plan(sweep).trials[0]

    def node(rank: int, peers: tuple[Site, ...] = ()) -> Site:
        nobody: Any = None
        return Site(
            agent=nobody,
            host=host.model_copy(update={"name": f"node{rank}"}),
            sweep=sweep,
            trial=trial,
            holder="holder",
            marker="marker",
            keep=TrialFolder(tmp_path),
            mask=Mask(),
            rank=rank,
            peers=peers,
        )

    return node(0, (node(1), node(2)))


def _failing(*wrong: int, of: Callable[[], Exception]) -> Callable[[Site], int]:
    def step(node: Site) -> int:
        if node.rank in wrong:
            raise of()
        return node.rank

    return step


def test_all_nodes_are_at_it_at_once_and_answer_by_rank(site: Site) -> None:
    together = threading.Barrier(3, timeout=60)

    def step(node: Site) -> str:
        together.wait()
        return node.host.name

    assert on_each(site, step) == ("node0", "node1", "node2")


def test_a_single_host_has_no_thread_and_no_name_in_its_errors(site: Site) -> None:
    alone = site.peers[0]
    here = threading.get_ident()
    assert on_each(alone, lambda _node: threading.get_ident()) == (here,)
    with pytest.raises(StageFailedError) as refused:
        on_each(alone, _failing(1, of=lambda: failed("patch", "patch_refused", "why")))
    assert refused.value.failure.message == "why"


def test_each_node_that_failed_is_named(site: Site) -> None:
    with pytest.raises(StageFailedError) as refused:
        on_each(site, _failing(0, 2, of=lambda: failed("patch", "patch_refused", "why")))
    said = refused.value.failure.message
    assert said == "node0: why; node2: why"
    with pytest.raises(ContactLost, match="node2: gone"):
        on_each(site, _failing(2, of=lambda: ContactLost("gone")))
    with pytest.raises(AgentRefusal) as refusal:
        on_each(site, _failing(1, of=lambda: AgentRefusal("disk_full", "no room", {})))
    assert (refusal.value.error, str(refusal.value)) == ("disk_full", "disk_full: node1: no room")


def test_a_mistake_of_ours_stays_what_it_is(site: Site) -> None:
    with pytest.raises(ZeroDivisionError, match="ours"):
        on_each(site, _failing(1, of=lambda: ZeroDivisionError("ours")))


def test_what_an_interrupted_step_starts_comes_before_what_ends_it(site: Site) -> None:
    started, go, order = threading.Barrier(3, timeout=60), threading.Event(), []

    def launch(node: Site) -> None:
        started.wait()
        if node.rank == 0:
            raise KeyboardInterrupt
        go.wait(60)
        order.append(f"start {node.rank}")

    def end(node: Site) -> None:
        if node.rank == 0:
            go.set()
            return
        order.append(f"end {node.rank}")

    with pytest.raises(KeyboardInterrupt):
        on_each(site, launch)
    on_each(site, end)
    until(lambda: len(order) == 4)
    for rank in (1, 2):
        assert order.index(f"start {rank}") < order.index(f"end {rank}")
