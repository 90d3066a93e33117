"""What the engine's own decode lines say of a probe."""

from __future__ import annotations

import pytest

from tasks.check_facts import DecodeFacts
from tasks.evidence import decode_facts


def line(running: int, queued: int, *, graph: bool = True, second: int = 0) -> str:
    """A decode line as SGLang 0.5.9 prints it."""
    return (
        f"[2026-03-04 09:20:{second:02d} TP0] Decode batch, #running-req: {running}, #token: 900, "
        f"token usage: 0.90, cuda graph: {graph}, gen throughput (token/s): 400.00, "
        f"#queue-req: {queued}\n"
    )


def test_a_log_without_decode_lines_says_nothing():
    assert decode_facts("", 64) is None
    assert decode_facts("[2026-03-04 09:20:04 TP0] something else\n", 64) is None


def test_lines_are_counted():
    log = line(8, 0) + line(8, 0, graph=False) + line(8, 2) + line(8, 0)
    assert decode_facts(log, 64) == DecodeFacts(
        lines=4, outside_graph=1, most_running=8, most_queued=2, waiting_below_limit=1
    )


@pytest.mark.parametrize(
    ("running", "queued", "limit", "waits"),
    [
        (63, 1, 64, 1),  # room in the batch, none in the memory
        (64, 1, 64, 0),  # the limit is what they wait for
        (63, 0, 64, 0),
        (63, 1, None, 0),  # who does not know the limit cannot tell
    ],
)
def test_waiting_for_memory_is_waiting_below_the_limit(running, queued, limit, waits):
    facts = decode_facts(line(running, queued), limit)
    assert facts is not None
    assert facts.waiting_below_limit == waits
