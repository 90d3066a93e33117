"""However a start log's bytes are cut, spoilt or multiplied, its reader answers the same."""

import itertools
import random
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.start_facts import StartFacts
from tasks.start_log import StartLog, read_start

REAL = Path(__file__).parent / "fixtures" / "real"
CASES = Path(__file__).parent / "fixtures" / "cases"
STARTS = sorted([*REAL.rglob("*.log"), *CASES.glob("*-launch-*/server.log")])


def feed_in_pieces(data: bytes, cuts: list[int]) -> StartFacts:
    log = StartLog()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        log.feed(data[start:end])
        log.progress()
    return log.finish(ended=False)


@pytest.mark.parametrize("path", STARTS, ids=lambda path: str(path.relative_to(REAL.parent)))
def test_pieces_do_not_matter_on_recorded_logs(path):
    data = path.read_bytes()
    dice = random.Random(len(data))
    whole = read_start(data)
    for _ in range(3):
        assert feed_in_pieces(data, [dice.randrange(len(data)) for _ in range(25)]) == whole


FRAGMENTS = st.sampled_from(
    [
        b"\n",
        b"\r",
        b"[2026-03-04 09:12:01 TP0] ",
        b"[2026-03-04 09:12:01 TP1] Scheduler hit an exception: ",
        b"(EngineCore_DP0 pid=88) ERROR 05-02 08:06:01 [a.py:1] ",
        b"(APIServer pid=5) ",
        b"Traceback (most recent call last):\n",
        b'  File "/opt/a.py", line 1, in f\n',
        b"torch.OutOfMemoryError: CUDA out of memory\n",
        b"KeyError: 'd2t'\n",
        b"During handling of the above exception, another exception occurred:\n",
        b"Load weight begin. avail mem=1.0 GB\n",
        b"Load weight end. elapsed=4.0 s, type=Llama, avail mem=1 GB\n",
        b"Capture cuda graph begin. \n",
        b"KV Cache is allocated. #tokens: 12, K size: 1 GB\n",
        b"Loading safetensors checkpoint shards:  41% Completed | 26/64 [03:20<04:55,  7.78s/it]",
        b"max_total_num_tokens=, max_running_requests=99999999999999999999, context_len=x\n",
        b"The server is fired up and ready to roll!\n",
        b"Exit code: -9\n",
        b"Rank 0 scheduler is dead. Please check\n",
        b"[Errno 98] error while attempting to bind on address ('', 99999): x\n",
        b"server_args=ServerArgs(port=x, speculative_draft_model_path=None\n",
        b"Received sigquit from a child process.\n",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(FRAGMENTS, FRAGMENTS, st.binary(max_size=30)), max_size=40).map(b"".join),
    st.lists(st.integers(0, 3000), max_size=10),
)
def test_any_bytes_in_any_pieces_give_the_same_facts(data, cuts):
    assert feed_in_pieces(data, cuts) == read_start(data)


def test_a_long_serving_log_takes_bounded_time_and_memory():
    start = (REAL / "eagle3-good.log").read_bytes().split(b"SIGTERM received")[0]
    start = start[: start.rindex(b"\n") + 1]
    lines = start.splitlines(keepends=True)
    block = b"".join(line for line in lines if b"batch, " in line or b' - "' in line)
    errors = (
        b"[2026-11-29 16:40:00] Exception in ASGI application: Traceback (most recent call last):\n"
        b'  File "/opt/a.py", line 1, in f\nValueError: bad request\n'
    )
    log = StartLog()
    log.feed(start)
    fed = 0
    began = time.monotonic()
    tracemalloc.start()
    while fed < 20_000_000:
        log.feed(block)
        log.feed(errors)
        fed += len(block) + len(errors)
    for _ in range(100):
        log.feed(b"x" * 50_000)
    log.feed(b"\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    facts = log.facts()
    assert facts.ready
    assert not facts.log_complete
    assert peak < 8_000_000
    assert time.monotonic() - began < 60
