"""A log reads the same however its bytes arrive, and nothing in it stops the reader."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tasks.log_lines import MAX_LINE_BYTES, LogLine, LogReader, moment, seconds_between


def read(*chunks: bytes) -> tuple[list[LogLine], LogReader]:
    reader = LogReader()
    lines = [line for chunk in chunks for line in reader.feed(chunk)]
    return lines + reader.finish(), reader


def one(text: str) -> LogLine:
    lines, _ = read(text.encode() + b"\n")
    assert len(lines) == 1
    return lines[0]


def test_sglang_prefix_gives_time_and_ranks():
    line = one("[2026-03-04 09:12:01 DP1 PP0 ATTN_CP0 TP2 EP2] Load weight begin. avail mem=1 GB")
    assert line.stamp == "2026-03-04 09:12:01"
    assert line.source == "DP1 PP0 ATTN_CP0 TP2 EP2"
    assert line.text == "Load weight begin. avail mem=1 GB"


def test_sglang_milliseconds_and_uvicorn_level_are_understood():
    line = one("[2026-03-04 09:12:01.123] ERROR:    [Errno 98] error while attempting to bind")
    assert (line.stamp, line.level) == ("2026-03-04 09:12:01.123", "ERROR")
    assert line.text == "[Errno 98] error while attempting to bind"


def test_vllm_prefixes_of_three_generations():
    new = one("(EngineCore_DP0 pid=88) INFO 05-02 08:06:01 [kv_cache_utils.py:1229] GPU KV cache")
    assert (new.source, new.level, new.stamp, new.text) == (
        "EngineCore_DP0",
        "INFO",
        "05-02 08:06:01",
        "GPU KV cache",
    )
    old = one("INFO 08-08 12:00:10 metrics.py:373] Speculative metrics: x")
    assert (old.source, old.text) == ("", "Speculative metrics: x")
    worker = one('(VllmWorker rank=1 pid=7) ERROR 04-01 09:00:10 [x.py:1]   File "a", line 1')
    assert (worker.source, worker.text) == ("VllmWorker_TP1", '  File "a", line 1')


def test_a_bare_process_prefix_is_stripped_and_keeps_the_indentation():
    line = one('(APIServer pid=51)   File "/opt/v/a.py", line 1, in f')
    assert (line.source, line.text) == ("APIServer", '  File "/opt/v/a.py", line 1, in f')


def test_an_empty_record_is_no_line():
    assert read(b"(Worker_TP0 pid=34322)\n\n   \n")[0] == []


def test_torch_prefix_names_the_rank():
    line = one("[rank3]:[E304 09:22:00.120 ProcessGroupNCCL.cpp:2150] [PG ID 2] NCCL error")
    assert (line.source, line.level, line.text) == ("rank3", "ERROR", "[PG ID 2] NCCL error")


def test_a_redrawn_bar_is_seen_before_any_newline():
    lines, reader = read(b"\rwarm: 12%|#2   | 1/9 [00:01<00:05, 1.0it/s]\rwarm: 77%|####")
    assert [line.bar for line in lines] == [True, True]
    reader = LogReader()
    reader.feed(b"\rwarm: 77%|####")
    assert reader.pending()[0].bar
    assert reader.pending()[0].text == "warm: 77%|####"


def test_a_record_glued_to_a_bar_is_a_record():
    lines, _ = read(
        b"load: 41% Completed | 26/64 [03:20<04:55,  7.78s/it][2026-03-04 09:16:10] x\n"
    )
    assert [line.text for line in lines][1] == "x"
    assert [line.bar for line in lines] == [True, False]


def test_colours_and_control_characters_go():
    assert one("\x1b[1;32mINFO\x1b[0m\x00 text\x1b]0;title\x07").text == "INFO text"


def test_bytes_that_are_not_utf8_are_counted_and_the_rest_is_read():
    lines, reader = read(b"caf\xe9 \xff\xfe \x97\nnext\n")
    assert reader.undecodable_bytes == 4
    assert lines[1].text == "next"


def test_a_huge_line_is_cut_and_counted():
    lines, reader = read("é".encode() * MAX_LINE_BYTES + b"\nnext\n")
    assert reader.cut_lines == 1
    assert reader.undecodable_bytes == 0
    assert [len(line.text) for line in lines] == [MAX_LINE_BYTES // 2, 4]


def test_carriage_return_with_newline_ends_one_line():
    assert [line.text for line in read(b"a\r", b"\nb\r\n")[0]] == ["a", "b"]


def test_times_are_compared_only_with_their_like():
    assert seconds_between("2026-03-04 09:12:01", "2026-03-04 09:12:31") == 30.0
    assert seconds_between("03-04 09:12:01", "03-04 09:12:31") == 30.0
    assert seconds_between("03-04 09:12:01", "2026-03-04 09:12:31") is None
    assert seconds_between("2026-03-04 09:12:31", "2026-03-04 09:12:01") is None
    assert moment("2026-99-99 09:12:31") is None
    assert moment("02-29 00:00:00") is not None


LOGGY = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(
            [
                b"\r",
                b"\n",
                b"\r\n",
                b"[2026-03-04 09:12:01 TP0] ",
                b"(EngineCore_DP0 pid=88) INFO 05-02 08:06:01 [a.py:1] ",
                b"41%|##| 26/64 [03:20<04:55,  7.78s/it]",
                b"\x1b[31m",
                "é".encode(),
            ]
        ),
    ),
    max_size=20,
).map(b"".join)


@given(LOGGY, st.lists(st.integers(0, 400), max_size=12))
def test_chunks_do_not_matter(data, cuts):
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    whole, first = read(data)
    torn, second = read(*pieces)
    assert torn == whole
    assert first.undecodable_bytes == second.undecodable_bytes
    assert first.cut_lines == second.cut_lines
