"""How GPUs hang together: real outputs and published layouts are read, what hurts is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.agent import topology as agent
from tasks.compare import compare
from tasks.record import TrialRecord
from tasks.report import render_report
from tasks.report_page import render_page
from tasks.topology import LINK_COLUMNS, Topology, read_topology
from tasks.topology_warnings import topology_warnings
from tests.builders import record

FIXTURES = Path(__file__).parent / "fixtures" / "topology"
LEGEND = "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"


def said(text: str, error: str | None = None) -> dict[str, Any]:
    return {"argv": [], "exit": 0, "stdout": text, "stderr": "", "error": error}


def raw(**fields: Any) -> dict[str, Any]:
    """Two NVLinked H200 as the agent saw them."""
    folder = FIXTURES / "h200-x2"
    texts = {name: said((folder / f"{name}.txt").read_text()) for name in ("topo", "p2p", "nvlink")}
    values: dict[str, Any] = {
        "matrix": texts["topo"],
        "p2p_read": texts["p2p"],
        "p2p_write": texts["p2p"],
        "nvlink": texts["nvlink"],
        "links": said((folder / "query.csv").read_text()),
        "nodes": {"node0": "0-31"},
        "iommu": [],
        "kernel": ["pci=realloc=off"],
        "devices": [
            {"bus": "00000000:00:06.0", "node": "-1", "group": None},
            {"bus": "00000000:00:07.0", "node": "-1", "group": None},
        ],
    }
    return values | fields


def pcie(**fields: Any) -> dict[str, Any]:
    """Eight cards on two sockets; links as an idle host shows them."""
    gpus = range(8)
    names = "\t".join(f"GPU{gpu}" for gpu in gpus)
    ok = "".join(
        f" GPU{a}\t" + "\t".join("X" if a == b else "OK" for b in gpus) + "\t\n" for a in gpus
    )
    values = raw(
        matrix=said((FIXTURES / "pcie-8x" / "topo.txt").read_text()),
        p2p_read=said(f" \t{names}\t\n{ok}{LEGEND}"),
        p2p_write=said(f" \t{names}\t\n{ok}{LEGEND}"),
        nvlink=said(""),
        links=said(
            "".join(f"{g}, 00000000:{g:02X}:00.0, 5, 5, 16, 16, 600.00, 600.00, 3090, [N/A], [N/A]\n" for g in gpus)
        ),
        nodes={"node0": "0-63", "node1": "64-127"},
        devices=[
            {"bus": f"00000000:{g:02x}:00.0", "node": str(g // 4), "group": str(10 + g)} for g in gpus
        ],
    )  # fmt: skip
    return values | fields


def read(values: dict[str, Any]) -> Topology:
    found = read_topology(values)
    assert found is not None
    return found


def warned(values: dict[str, Any]) -> list[str]:
    found = topology_warnings(read(values))
    assert all(one.source for one in found)
    return [one.text for one in found]


def test_the_columns_are_those_that_the_agent_asks_for():
    assert ",".join(LINK_COLUMNS) == agent.LINK_ROWS


def test_two_h200_on_nvlink_are_read_and_nothing_is_said_against_them():
    found = read(raw())
    assert found.matrix == ("X NV18", "NV18 X")
    assert found.no_peer == ()
    assert (found.numa_nodes, found.iommu, found.iommu_passthrough, found.acs_isolated) == (
        1, False, None, None,
    )  # fmt: skip
    one = found.gpus[1]
    assert (one.index, one.pcie_gen, one.pcie_gen_max) == (1, 5, 5)
    assert (one.pcie_width, one.pcie_width_max) == (16, 16)
    assert (one.power_limit_w, one.power_default_w, one.clock_max_mhz) == (700, 700, 1980)
    assert (one.numa_node, one.cpus) == (0, "0-31")
    assert (one.nvlinks, one.nvlinks_inactive) == (18, 0)
    assert one.nvlink_gb_s == pytest.approx(18 * 26.562)
    assert topology_warnings(found) == []


def test_eight_cards_on_pcie_over_two_sockets():
    found = read(pcie())
    assert found.matrix[0] == "X PHB PHB PHB SYS SYS SYS SYS"
    assert [gpu.numa_node for gpu in found.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {gpu.nvlinks for gpu in found.gpus} == {None}
    assert found.path(0, 4) == "SYS"
    texts = warned(pcie())
    assert len(texts) == 2
    assert texts[0].startswith("GPUs 0-4, 0-5, 0-6, 0-7 and 12 more pairs reach each other across")
    assert texts[1].startswith("8 GPUs and no NVLink")


def link(row: str) -> dict[str, Any]:
    return {"links": said(row + "\n")}


H200 = "0, 00000000:00:06.0, 5, 5, 16, 16, 700.00, 700.00, 1980, 1980, 1980"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (link(H200.replace("16, 16", "8, 16")), "GPU 0 on x8 instead of x16"),
        (link(H200.replace("16, 16", "8, 8")), "GPU 0 on x8 at most: a slot for x16"),
        (link(H200.replace("5, 5", "1, 5")), "GPU 0 at PCIe generation 1 of 5: read while idle"),
        (link(H200.replace("700.00, 700.00", "450.00, 700.00")), "GPU 0 limited to 450 W, 700 W by"),
        (link(H200.replace("1980, 1980, 1980", "1980, 1500, 1980")), "GPU 0 with application clocks set to 1500 MHz"),
        (
            {"nvlink": said("GPU 0: A (UUID: x)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n")},
            "GPU 0 with 1 of 2 NVLinks inactive",
        ),
        (
            {"p2p_write": said(" \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tOK\tX\t\n")},
            "no direct access between GPUs 0-1 (CNS: the chipset does not support it)",
        ),
    ],
)  # fmt: skip
def test_what_is_known_to_hurt_is_named_with_its_source(change, text):
    (found,) = warned(raw(**change))
    assert found.startswith(text)


def test_an_iommu_matters_where_gpus_reach_each_other_over_pcie():
    iommu = {"iommu": ["dmar0", "dmar1"], "kernel": ["intel_iommu=on"]}
    assert warned(raw(**iommu)) == []
    (text,) = [t for t in warned(pcie(**iommu)) if "IOMMU" in t]
    assert "so ACS sends their traffic through the root" in text
    (text,) = [t for t in warned(pcie(iommu=["dmar0"], kernel=["iommu=pt"])) if "IOMMU" in t]
    assert text.startswith("the IOMMU is on, though in pass-through mode")
    nowhere = pcie(**iommu)
    nowhere["p2p_read"] = said(nowhere["p2p_read"]["stdout"].replace("OK\t", "CNS\t"))
    assert not [t for t in warned(nowhere) if "IOMMU" in t]
    shared = [device | {"group": "1"} for device in pcie()["devices"]]
    assert read(pcie(devices=shared, **iommu)).acs_isolated is False


def test_what_is_unknown_is_none_and_warns_of_nothing():
    nothing = raw(
        **dict.fromkeys(["matrix", "p2p_read", "p2p_write", "nvlink", "links"], said("", "timeout")),
        nodes=None, iommu=None, kernel=None, devices=[],
    )  # fmt: skip
    found = read(nothing)
    assert found == Topology()
    assert topology_warnings(found) == []
    assert read_topology(raw(matrix=said("", "not_found"))) is None
    assert read_topology(None) is None
    odd = raw(
        links=said("0, 0:0:6.0, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]\n")
    )
    assert read(odd).gpus[0].pcie_gen is None
    assert warned(odd) == []


def test_cards_beside_gpus_are_no_gpus():
    text = (
        "\tGPU0\tGPU1\tNIC0\tmlx5_1\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tPIX\tSYS\tSYS\t0-7,16-23\t1\n"
        "GPU1\tPIX\t X \tSYS\tSYS\t0-7,16-23\t1\n"
        "NIC0\tSYS\tSYS\t X \tPIX\n"
    )
    found = read(raw(matrix=said(text)))
    assert found.matrix == ("X PIX", "PIX X")
    assert [(gpu.cpus, gpu.numa_node) for gpu in found.gpus] == [("0-7,16-23", 1)] * 2


ODD = st.text("GPU01 X\tNVSYOK:.,[]/A-\n\x1b[4m", max_size=120) | st.text(max_size=60)


@given(st.tuples(ODD, ODD, ODD, ODD, ODD), st.none() | st.lists(ODD, max_size=3))
def test_no_output_stops_the_reading(texts, names):
    matrix, read_, write, nvlink, links = map(said, texts)
    found = read_topology(
        raw(matrix=matrix, p2p_read=read_, p2p_write=write, nvlink=nvlink, links=links,
            iommu=names, kernel=names, nodes=None if names is None else dict.fromkeys(names))
    )  # fmt: skip
    assert found is not None
    assert Topology.model_validate_json(found.model_dump_json()) == found
    assert all(one.text and one.source for one in topology_warnings(found))
    assert render_report_of(found)


def render_report_of(topology: Topology) -> str:
    records = [record(topology=topology)]
    return render_report(compare(records), records)


def test_the_report_draws_the_matrix_and_the_page_strikes_what_is_denied():
    values = raw(p2p_read=said(" \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"))
    text = render_report_of(read(values))
    section = text.split("## How the GPUs hang together\n")[1].split("\n## ")[0]
    assert "Host h1: 1 NUMA node, no IOMMU, no direct access between 1 pair of GPUs." in section
    assert "| GPU0 | X | ~~NV18~~ |" in section
    assert "| 1 | gen 5 | x16 | 18, 478 GB/s | 700 W | 1980 MHz | 0 | 0-31 |" in section
    assert "- no direct access between GPUs 0-1 (GNS: the GPU does not support it)" in section
    page = render_page(text, title="t", pictures={})
    assert "<s>NV18</s>" in page


def test_hosts_of_which_the_same_is_known_are_drawn_once():
    alike, other = read(raw()), read(raw(nodes=["node0", "node1"]))
    records = [
        record(host=host, trial=host, topology=found)
        for host, found in (("h1", alike), ("h2", other), ("h3", alike))
    ]
    text = render_report(compare(records), records)
    assert "Hosts h1, h3: 1 NUMA node," in text
    assert "Host h2: 2 NUMA nodes," in text
    assert text.count("| GPU1 | NV18 | X |") == 2


def test_a_record_of_before_has_no_topology_and_the_report_no_such_section():
    old = json.loads(record().model_dump_json())
    del old["topology"]
    read_back = TrialRecord.model_validate(old)
    assert read_back.topology is None
    assert "How the GPUs hang" not in render_report(compare([read_back]), [read_back])
