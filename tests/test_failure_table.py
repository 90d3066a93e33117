"""The table of failure classes: whole, consistent, documented, and right about known texts."""

import re
from pathlib import Path

import pytest

from tasks.failure_table import FAILURES
from tasks.failures import failure_of, failures_markdown
from tasks.start_log import StartLog

ROOT = Path(__file__).parent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            (
                "ValueError: Model KimiK25ForConditionalGeneration does not implement"
                " set_eagle3_layers_to_capture, which EAGLE3 aux hidden-state capture requires."
            ),
            "missing_interface",
        ),
        (
            "ValueError: EAGLE is not supported in attention backend torch_native",
            "attention_backend_incompatible",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", "gpu_oom"),
        (
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "illegal_memory_access",
        ),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "gpu_unsupported",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, unhandled cuda error",
            "nccl_error",
        ),
        ("ValueError: Port is already in use.", "port_in_use"),
        ("zmq.error.ZMQError: Address already in use (addr='tcp://*:5555')", "port_in_use"),
        ("OSError: [Errno 28] No space left on device", "disk_full"),
        (
            "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'",
            "shared_memory_too_small",
        ),
        ("ModuleNotFoundError: No module named 'orjson'", "package_missing"),
        ("ValueError: Unknown thing", "unknown_exception"),
        (
            (
                "ValueError: No available memory for the cache blocks. Try increasing"
                " `gpu_memory_utilization` when initializing the engine."
            ),
            "kv_cache_too_small",
        ),
        (
            (
                "ValueError: Loading /m requires you to execute the configuration file in that repo;"
                " set the option `trust_remote_code=True` to remove this error."
            ),
            "remote_code_refused",
        ),
        (
            (
                "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 106496,"
                " Hardware limit: 101376"
            ),
            "gpu_unsupported",
        ),
    ],
)
def test_known_texts(text, expected):
    log = StartLog("sglang")
    log.feed(
        b"[2026-03-04 09:20:04 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        b'  File "/opt/sglang/srt/a.py", line 1, in f\n' + text.encode() + b"\n"
    )
    found = log.facts().failure
    assert found is not None
    assert found.failure == expected
    assert found.root_line == text
    assert found.first_failing_rank == "TP0"


def test_names_are_unique_and_every_row_can_become_a_failure():
    assert len({row.name for row in FAILURES}) == len(FAILURES)
    for row in FAILURES:
        assert failure_of(row.name).remedy == row.remedy
    with pytest.raises(KeyError):
        failure_of("no_such_class")


def test_the_page_of_failures_is_up_to_date():
    page = ROOT.parent / "docs" / "failures.md"
    assert page.read_text(encoding="utf-8") == failures_markdown(), (
        "docs/failures.md is older than the table: write failures_markdown() into it"
    )


def test_every_class_that_the_program_names_is_in_the_table():
    named = re.compile(r"\b(?:failed\(\s*(?:\w+|\"[^\"]*\"),|failure_of\()\s*\"(\w+)\"")
    names = {
        name
        for room in ("tasks", "flows", "infra")
        for path in (ROOT.parent / room).rglob("*.py")
        for name in named.findall(path.read_text(encoding="utf-8"))
    }
    assert "engine_dead" in names
    assert names <= {row.name for row in FAILURES}
