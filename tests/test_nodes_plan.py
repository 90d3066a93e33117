"""A place of several nodes as it is written, refused, and planned; nothing is started."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from configs.host import Host, Ssh
from configs.nodes import Joint, all_nodes, joint_flags, lock_order, node_problems, nodes_of
from configs.problems import ConfigError
from configs.read import parse, parse_sweep, to_yaml
from flows.question import pose
from flows.show import plan_text
from tasks.launch import engine_argv
from tests.test_papers import FENCE

if TYPE_CHECKING:
    from flows.question import Question

PAGE = (Path(__file__).parents[1] / "docs" / "nodes.md").read_text()


def _example(kind: str) -> str:
    return next(found[3] for found in FENCE.finditer(PAGE) if found[2] == f"yaml {kind}")


def _text(replaced: tuple[str, str] = ("", "")) -> str:
    old, new = replaced
    text = _example("sweep")
    assert old in text
    return text.replace(old, new) if old else text


def _node(name: str, **changed: Any) -> Host:
    host = parse(Host, _example("host"), "node0.yaml")
    connect = host.connect
    assert isinstance(connect, Ssh)
    known = {
        "name": name,
        "connect": connect.model_copy(update={"host": f"{name}.example.org"}),
        "address": f"10.0.0.{int(name[-1]) + 1}",
    }
    return host.model_copy(update={**known, **changed})


def _posed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None = None, **node1: Any
) -> Question:
    folder = tmp_path / "configs" / "hosts"
    folder.mkdir(parents=True)
    for host in (_node("node0"), _node("node1", **node1)):
        (folder / f"{host.name}.yaml").write_text(to_yaml(host))
    monkeypatch.chdir(tmp_path)
    return pose(parse_sweep(text or _text(), "over-two.yaml"))


def _shown(question: Question) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(plan_text(question))
    return re.sub(r" \\\n\s+", " ", capture.get())


def test_the_page_is_planned_with_the_command_of_every_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = _posed(tmp_path, monkeypatch)
    assert {trial.host for trial in question.plan.trials} == {"node0+node1"}
    shown = _shown(question)
    assert "on node0+node1" in shown
    for rank in (0, 1):
        meet = f"--dist-init-addr 10.0.0.1:DIST_PORT --nnodes 2 --node-rank {rank}"
        assert shown.count(meet) == 2, shown  # of each arm
        assert f"  node{rank}:\n" in shown
    assert "node1: would end only processes" in shown


def test_hosts_in_turn_are_something_else() -> None:
    pool = parse_sweep(_text(("[[node0, node1]]", "[node0, node1]")), "x.yaml")
    assert pool.hosts == ("node0", "node1")
    both = parse_sweep(_text(("[[node0, node1]]", "[[a, b], c]")), "x.yaml")
    assert both.hosts == (("a", "b"), "c")
    assert all_nodes(both.hosts) == ("a", "b", "c")
    assert nodes_of("a+b") == ("a", "b")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[[node0]]", "hosts.0: is a place of several nodes: name at least two"),
        ("[[node0, [node1]]]", "hosts.0: holds something else than names of hosts"),
        ("[[node0, node1], node0]", "hosts: node0 stands twice: name it once"),
        ("[[node0, NODE]]", "hosts.0: "),
        ("[3]", "hosts.0: must be text, not 3"),
    ],
)
def test_a_wrong_place_is_named(written: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_sweep(_text(("[[node0, node1]]", written)), "x.yaml")
    assert len(refused.value.problems) == 1
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "flag", ["nnodes: 2", "node-rank: 0", "dist-init-addr: 10.0.0.1:5000", "nccl-init-addr: a:1"]
)
def test_what_is_filled_in_may_not_be_set(flag: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_sweep(_text(("tp-size: 16", f"tp-size: 16, {flag}")), "x.yaml")
    assert f"engine.flags.{flag.split(':', maxsplit=1)[0]}: is " in str(refused.value)


def test_on_a_single_host_the_meeting_place_may_be_fixed_as_before() -> None:
    text = _text(("[[node0, node1]]", "[node0]"))
    asked = parse_sweep(text.replace("tp-size: 16", "tp-size: 8, dist-init-addr: a:1"), "x.yaml")
    assert asked.hosts == ("node0",)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gpus": 4}, "node0 has gpus 8, node1 has 4: nodes of one place are alike"),
        ({"host_class": "4x"}, "node0 has host_class 8x-h200, node1 has 4x"),
        ({"address": None}, "node1 has no address"),
        ({"address": "127.0.0.1"}, "the address of node1 is loopback, where node0 cannot reach it"),
    ],
)
def test_nodes_that_do_not_fit_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        _posed(tmp_path, monkeypatch, **changed)
    assert f"hosts.0: {said}" in str(refused.value)


def test_on_loopback_alone_nodes_reach_each_other() -> None:
    nodes = [_node(name, address="127.0.0.1") for name in ("node0", "node1")]
    assert list(node_problems("hosts.0", nodes)) == []
    assert list(node_problems("hosts.0", [_node("node0", address=None)])) == []


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (32, "asks for 32 GPUs, host node0+node1 has 16: lower tp-size"),
        (15, "asks for 15 GPUs, which 2 nodes (node0+node1) cannot share evenly: change tp-size"),
    ],
)
def test_the_gpus_of_all_nodes_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        _posed(tmp_path, monkeypatch, _text(("tp-size: 16", f"tp-size: {size}")))
    assert f"engine.flags.tp-size: {said}" in str(refused.value)


def test_a_screen_over_several_nodes_is_refused() -> None:
    text = _text().replace(
        "blocks: 3", "factors: {nccl: {off: {}, ll: {NCCL_PROTO: LL}}}\nscreen: {factor: nccl}"
    )
    with pytest.raises(ConfigError, match="screen: times all-reduce on one host"):
        parse_sweep(text, "x.yaml")


VLLM = """
  kind: vllm
  model: /shared/kimi-k2.5
  flags: {tensor-parallel-size: 16, max-num-seqs: 64}
"""


def test_only_the_leading_node_has_a_door_and_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = re.sub(r"\n  kind: sglang\n.*\n.*\n", VLLM, _text())
    asked = parse_sweep(text, "x.yaml")
    joint = Joint(2, 0, "10.0.0.1", 29500)
    lead = engine_argv(asked, _node("node0"), "base", {}, port=30000, joint=joint)
    peer = engine_argv(asked, _node("node1"), "base", {}, port=30001, joint=joint._replace(rank=1))
    assert lead[lead.index("--host") + 1] == "127.0.0.1"
    assert "--headless" not in lead
    assert "--headless" in peer
    assert not {"--host", "--port"} & set(peer)
    question = _posed(tmp_path, monkeypatch)
    keyed = {
        name: of.model_copy(update={"api_key_from": "KEY"}) for name, of in question.hosts.items()
    }
    shown = _shown(question._replace(hosts=keyed))
    assert shown.count("--api-key") == 2, "of the leading node in each arm"
    assert shown.count("--host 127.0.0.1") == 4


def test_an_address_of_version_six_stands_in_brackets() -> None:
    joint = Joint(2, 1, "fd00::1", 29500)
    assert joint_flags("sglang", joint)["dist-init-addr"] == "[fd00::1]:29500"
    assert joint_flags("vllm", joint)["master-addr"] == "fd00::1"
    assert joint_flags("sglang", None) == {}


def test_hosts_are_claimed_by_address_whatever_they_are_called() -> None:
    a, b = _node("node0"), _node("node1")
    assert lock_order([a, b]) == lock_order([b, a]) == ("node0", "node1")
    renamed = [host.model_copy(update={"name": name}) for host, name in ((a, "z"), (b, "y"))]
    assert lock_order(renamed) == ("z", "y")
