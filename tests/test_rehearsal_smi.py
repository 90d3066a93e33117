"""The pretend nvidia-smi prints what the real one prints, and knows who holds memory."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import replace

import pytest

from infra.agent import topology
from infra.rehearsal import knobs, memory, tree
from tasks.topology import read_topology

QUERY = "--query-gpu=index,uuid,name,driver_version,memory.used,memory.total,utilization.gpu"
APPS = "--query-compute-apps=gpu_uuid,pid,process_name,used_memory"


@pytest.fixture
def host(tmp_path):
    tree.build(tmp_path)
    return tmp_path


def smi(host, *arguments) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [host / "bin/nvidia-smi", *arguments], capture_output=True, text=True, check=False
    )


def rows(host, *arguments) -> list[list[str]]:
    answer = smi(host, *arguments, "--format=csv,noheader,nounits")
    assert answer.returncode == 0, answer.stdout
    return [line.split(", ") for line in answer.stdout.splitlines()]


def sleeper(host, gpu, mib) -> subprocess.Popen[bytes]:
    """A process of somebody that holds memory."""
    code = (
        f"import sys; sys.path.insert(0, {str(tree.REPOSITORY)!r})\n"
        "from pathlib import Path; from infra.rehearsal import memory\n"
        f"memory.hold(Path({str(host)!r}), {gpu}, {mib}); print('held', flush=True)\n"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [host / "bin/python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_eight_idle_cards(host):
    found = rows(host, QUERY)
    assert [row[0] for row in found] == [str(gpu) for gpu in range(8)]
    assert len({row[1] for row in found}) == 8
    assert all("RTX PRO 6000 Blackwell" in row[2] for row in found)
    assert all(row[3].startswith("580.") for row in found)
    assert {tuple(row[4:]) for row in found} == {("4", "97887", "0")}
    assert rows(host, APPS) == []


def test_csv_has_headers_and_units_unless_told_otherwise(host):
    whole = smi(host, "--query-gpu=index,memory.used,clocks.sm", "--format=csv").stdout
    assert whole.splitlines()[:2] == [
        "index, memory.used [MiB], clocks.current.sm [MHz]",
        "0, 4 MiB, 180 MHz",
    ]
    bare = smi(host, "--query-gpu=index,memory.used", "--format=csv,noheader").stdout
    assert bare.splitlines()[0] == "0, 4 MiB"


def test_the_facts_of_a_survey_can_be_asked(host):
    fields = (
        "index,uuid,name,driver_version,memory.used,memory.total,utilization.gpu,power.draw,"
        "clocks.sm,clocks.max.sm,temperature.gpu,clocks_event_reasons.active"
    )
    assert all(len(row) == 12 for row in rows(host, f"--query-gpu={fields}"))


def test_unknown_field_is_refused(host):
    answer = smi(host, "--query-gpu=index,mood", "--format=csv")
    assert answer.returncode == 2
    assert 'Field "mood" is not a valid field to query.' in answer.stdout


def test_memory_belongs_to_a_living_process(host):
    with sleeper(host, 2, 70_000) as process:
        assert rows(host, QUERY)[2][4] == "70004"
        [app] = rows(host, APPS)
        assert app[1:] == [str(process.pid), app[2], "70000"]
        assert "python" in app[2]
        process.communicate()
    assert rows(host, QUERY)[2][4] == "4"
    assert rows(host, APPS) == []


def test_memory_may_be_released_late(host):
    knobs.write(host, replace(knobs.Knobs(), release_delay_s=30.0))
    with sleeper(host, 2, 70_000) as process:
        process.kill()
        process.wait()
    assert rows(host, QUERY)[2][4] == "70004"
    assert rows(host, APPS) == []
    [seen] = (host / "gpu/2").glob(".dead-*")
    os.utime(seen, (0, 0))
    assert rows(host, QUERY)[2][4] == "4"


def test_planted_holders_of_others_and_of_nobody(host):
    memory.plant(host, 0, "other", 500, pid=4242, name="/usr/bin/python3")
    ghost = memory.plant(host, 1, "ghost", 12_000)
    assert [row[1:] for row in rows(host, APPS)] == [["4242", "/usr/bin/python3", "500"]]
    assert [row[4] for row in rows(host, QUERY)[:2]] == ["504", "12004"]
    ghost.unlink()
    assert rows(host, QUERY)[1][4] == "4"


def test_topology_list_and_table(host):
    topology = smi(host, "topo", "-m").stdout.splitlines()
    assert topology[1].split("\t")[:9] == [
        "GPU0", " X ", "PIX", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS",
    ]  # fmt: skip
    assert smi(host, "-L").stdout.splitlines()[7].startswith("GPU 7: NVIDIA RTX PRO 6000")
    assert "Driver Version: 580." in smi(host).stdout


def test_reset_gives_the_pristine_host_back(host):
    memory.plant(host, 0, "other", 500)
    knobs.write(host, replace(knobs.Knobs(), seed=9))
    model = host / "home/site/sglang/srt/models/kimi_k25.py"
    pristine = model.read_text()
    model.write_text(pristine + "# patched\n")
    tree.reset(host)
    assert model.read_text() == pristine
    assert rows(host, QUERY)[0][4] == "4"
    assert knobs.read(host) == knobs.Knobs()


def test_somebody_who_comes_and_goes_is_seen_whole_or_not_at_all(host):
    def come_and_go() -> None:
        for _ in range(400):
            memory.plant(host, 5, "passing", 400, pid=os.getpid()).unlink()

    passer = threading.Thread(target=come_and_go)
    passer.start()
    seen = set()
    while passer.is_alive():
        seen |= {holder.mib for holder in memory.holders(host, 5)}
    assert seen <= {400}


def test_misspelt_knobs_are_refused(host):
    (host / knobs.FILE).write_text('{"timescale": 2}')
    with pytest.raises(ValueError, match="timescale"):
        knobs.read(host)


def test_pretend_weights_use_no_disk(host):
    files = list((host / "home").rglob("*.safetensors"))
    assert len(files) == 4
    assert all(file.stat().st_size > 10**9 for file in files)
    assert all(file.stat().st_blocks * 512 < 100_000 for file in files)


def test_how_the_cards_hang_together_is_read_as_that_of_a_real_host(host, monkeypatch):
    monkeypatch.setenv("PATH", f"{host / 'bin'}:{os.environ['PATH']}")
    raw = topology.ask()
    assert {
        raw[name]["exit"] for name in ("matrix", "p2p_read", "p2p_write", "nvlink", "links")
    } == {0}
    found = read_topology(raw)
    assert found is not None
    assert found.matrix[3] == "NODE NODE PIX X SYS SYS SYS SYS"
    assert found.no_peer == ()
    assert {(gpu.pcie_gen, gpu.pcie_width, gpu.power_limit_w) for gpu in found.gpus} == {
        (5, 16, 600)
    }
    assert [gpu.numa_node for gpu in found.gpus] == [0] * 4 + [1] * 4
    assert {gpu.nvlinks for gpu in found.gpus} == {None}
    assert smi(host, "topo", "-p2p", "z").returncode == 2
