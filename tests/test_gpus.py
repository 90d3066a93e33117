"""Whether GPUs are free is decided rightly from everything that nvidia-smi prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.gpus import survey_gpus
from tasks.smi_csv import queried_fields, read_apps, read_gpus
from tasks.smi_messages import find_trouble
from tasks.smi_table import read_table

REAL = Path(__file__).parent / "fixtures" / "real_info"
FIELDS = ("index", "uuid", "memory.used", "memory.total", "utilization.gpu")


def rows(*used: object) -> str:
    return "\n".join(f"{i}, GPU-{i}, {mib}, 143771, 0" for i, mib in enumerate(used))


def test_the_agents_own_query_is_read_in_full():
    line = (
        "0, GPU-a, NVIDIA H200, 580.159.04, 4, 143771, 0, 75.10, 345, 1980, 28, 0x0000000000000001"
    )
    (gpu,) = read_gpus(line)
    assert (gpu.name, gpu.driver_version, gpu.used_mib, gpu.total_mib) == (
        "NVIDIA H200",
        "580.159.04",
        4,
        143771,
    )
    assert (gpu.power_w, gpu.sm_clock_mhz, gpu.sm_clock_max_mhz) == (75.1, 345, 1980)
    assert (gpu.temperature_c, gpu.clock_reasons) == (28, 1)


def test_a_header_overrules_the_asked_order_and_units_are_read_off():
    survey = survey_gpus(
        (REAL / "eagle3-good" / "nvidia-smi-query-gpu.csv").read_text(encoding="utf-8"),
        (REAL / "eagle3-good" / "nvidia-smi-query-compute-apps.csv").read_text(encoding="utf-8"),
    )
    assert survey.busy == (0,)
    assert survey.holders == (2430,)
    assert survey.gpus[0].used_mib == 44586
    assert survey.gpus[0].sm_clock_mhz == 1980
    assert survey.apps[0].name == "sglang::scheduler"
    assert survey.host_ok


def test_masked_identifiers_leave_both_gpus_busy():
    survey = survey_gpus(
        (REAL / "tp2" / "nvidia-smi-query-gpu.csv").read_text(encoding="utf-8"),
        (REAL / "tp2" / "nvidia-smi-query-compute-apps.csv").read_text(encoding="utf-8"),
    )
    assert survey.busy == (0, 1)
    assert len(survey.holders) == 6


def test_the_human_table_tells_the_same_as_the_queries():
    survey = survey_gpus((REAL / "tp2" / "nvidia-smi.txt").read_text(encoding="utf-8"))
    assert survey.busy == (0, 1)
    assert survey.holders == (1515, 1516, 1624, 1625, 1729, 1730)
    assert survey.gpus[1].used_mib == 28567
    assert not survey.mig
    assert survey.host_ok


def test_all_free_needs_every_gpu():
    assert survey_gpus(rows(4, 4), gpu_columns=FIELDS).all_free
    assert not survey_gpus(rows(4, 5000), gpu_columns=FIELDS).all_free
    assert not survey_gpus("", gpu_columns=FIELDS).all_free


def test_memory_that_nobody_holds_is_unknown_not_free():
    survey = survey_gpus(rows(4, 10151), gpu_columns=FIELDS)
    assert (survey.free, survey.busy, survey.unknown) == ((0,), (), (1,))
    assert "10151 MiB" in survey.warnings[0]


def test_memory_that_is_not_reported_is_unknown():
    survey = survey_gpus(rows(4, "[N/A]"), gpu_columns=FIELDS)
    assert survey.unknown == (1,)
    assert "[N/A]" in survey.warnings[0]


def test_a_gpu_with_a_process_is_busy_however_little_it_uses():
    survey = survey_gpus(rows(4, 4), "GPU-1, 9, python3, 2", gpu_columns=FIELDS)
    assert survey.busy == (1,)


def test_graphics_processes_hold_no_gpu():
    head = "|    0   N/A  N/A    1234      G   /usr/lib/xorg/Xorg    4MiB |\n"
    table = read_table("| Processes:  |\n" + head)
    assert [p.type for p in table.processes] == ["G"]
    assert table.compute == ()


def test_old_tables_have_no_instance_columns():
    table = read_table("| Processes: |\n|    3      4471      C   python3 -c x y      4471MiB |\n")
    assert [(p.gpu, p.pid, p.name, p.used_mib) for p in table.processes] == [
        (3, 4471, "python3 -c x y", 4471)
    ]


def test_a_process_on_a_gpu_that_is_not_listed_is_told():
    survey = survey_gpus(rows(4), "GPU-77, 9, python3, 2", gpu_columns=FIELDS)
    assert survey.holders == (9,)
    assert "GPU-77" in survey.warnings[0]


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("No devices were found", 6, "no_gpus"),
        ("Failed to initialize NVML: Driver/library version mismatch", 18, "driver_mismatch"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            9,
            "driver_not_running",
        ),
        ("Failed to initialize NVML: Unknown Error", 255, "gpu_access_lost"),
        ("bash: nvidia-smi: command not found", 127, "nvidia_smi_missing"),
        ("", 124, "nvidia_smi_hangs"),
        ("", 15, "gpu_lost"),
        ("", 77, "nvidia_smi_failed"),
        ("", 0, "no_gpu_rows"),
        ("GPU 0: A100 (UUID: GPU-1)\n  MIG 3g.40gb     Device  0: (UUID: MIG-2)", 0, "mig_enabled"),
    ],
)
def test_a_host_in_trouble_is_named(text, code, reason):
    survey = survey_gpus(text, exit_code=code)
    assert not survey.host_ok
    assert survey.reason == reason


def test_a_lost_gpu_beside_sound_ones_refuses_the_host():
    text = rows(4, 4) + (
        "\nUnable to determine the device handle for GPU2: 0000:BA:00.0: GPU is lost.  "
        "Reboot the system to recover this GPU"
    )
    survey = survey_gpus(text, gpu_columns=FIELDS)
    assert survey.reason == "gpu_lost"
    assert survey.bus_id == "0000:BA:00.0"
    assert survey.free == (0, 1)


def test_too_few_gpus_refuse_the_host():
    assert survey_gpus(rows(4, 4), gpu_columns=FIELDS, wanted=8).reason == "too_few_gpus"
    assert survey_gpus(rows(4, 4), gpu_columns=FIELDS, wanted=2).host_ok


def test_mig_is_seen_in_queries_too():
    columns = (*FIELDS, "mig.mode.current")
    assert survey_gpus("0, GPU-0, 4, 9, 0, Enabled", gpu_columns=columns).reason == "mig_enabled"
    apps = "MIG-5f, 9, python3, 2"
    assert survey_gpus(rows(4), apps, gpu_columns=FIELDS).reason == "mig_enabled"


def test_the_fields_of_a_command_are_found():
    command = "nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits"
    assert queried_fields(command) == ("index", "memory.used")
    assert queried_fields("nvidia-smi") is None


def test_process_names_may_hold_commas_and_remarks():
    apps = read_apps("GPU-1, 88, python3, -c, x, 139900\nGPU-2, 89, [Not Found], [N/A]")
    assert [(a.pid, a.name, a.used_mib) for a in apps] == [
        (88, "python3, -c, x", 139900),
        (89, None, None),
    ]


CELLS = st.sampled_from(
    ["0", "GPU-1", "[N/A]", "4 MiB", ",", " ", "|", "MIG devices:", "Processes:", "-1", "9" * 40]
)


@given(st.lists(CELLS | st.text(max_size=9), max_size=30), st.integers(0, 255))
def test_no_text_breaks_the_reading(parts, code):
    for joint in (", ", "\n", "  "):
        text = joint.join(parts)
        survey = survey_gpus(text, text, exit_code=code)
        assert survey.host_ok == (survey.reason is None)
        find_trouble(text, code)


@given(st.lists(st.integers(0, 143771), min_size=1, max_size=8))
def test_every_gpu_is_in_exactly_one_list(used):
    survey = survey_gpus(rows(*used), gpu_columns=FIELDS)
    listed = [*survey.free, *survey.busy, *survey.unknown]
    assert sorted(listed) == list(range(len(used)))
