"""Process lists are read whatever columns ps printed, and start times are compared as moments."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tasks.process_list import (
    Process,
    ps_columns,
    read_facts,
    read_ps,
    same_start,
    started_before,
)

REAL = Path(__file__).parent / "fixtures" / "real_info"
LINE = (
    "    7100    7000    7000    7000 ana      Rl    Wed Mar  4 09:12:20 2026 "
    "sglang::schedul sglang::scheduler_TP0"
)


def test_the_recorded_columns_are_read():
    (process,) = read_ps(LINE)
    assert process == Process(
        pid=7100,
        ppid=7000,
        pgid=7000,
        sid=7000,
        user="ana",
        state="Rl",
        start="Wed Mar  4 09:12:20 2026",
        comm="sglang::schedul",
        args="sglang::scheduler_TP0",
    )


def test_a_command_name_with_spaces_does_not_move_the_arguments():
    (process,) = read_ps(LINE.replace("sglang::schedul ", "my odd name     "))
    assert process.comm == "my odd name"
    assert process.args == "sglang::scheduler_TP0"


def test_a_header_tells_the_columns():
    processes = read_ps((REAL / "eagle3-good" / "ps.txt").read_text(encoding="utf-8"))
    assert processes[0].pid == 2113
    assert processes[0].comm == "python3"
    assert processes[0].args.startswith("python3 -m sglang.launch_server --port 30000")
    assert {p.sid for p in processes} == {2113}
    assert [p.comm for p in processes if p.engine] == [
        "python3",
        "sglang::schedul",
        "sglang::detoken",
    ]


def test_the_columns_of_a_command_are_found():
    assert ps_columns("ps -eo pid,ppid,args --no-headers") == ("pid", "ppid", "args")
    assert ps_columns("ps axo pid,comm") == ("pid", "comm")
    assert ps_columns("ps -ef") is None


def test_the_agents_list_is_read_and_broken_entries_are_left_out():
    listed = [
        {"pid": 5, "ppid": 1, "uid": 1000, "state": "S", "start_ticks": 77, "marker": "t1"},
        {"pid": None},
        "nonsense",
    ]
    assert read_facts(listed) == (
        Process(pid=5, ppid=1, uid=1000, state="S", start=77, marker="t1"),
    )


def test_start_times_of_ps_may_move_by_a_second():
    assert same_start("Wed Mar  4 09:12:00 2026", "Wed Mar 4 09:12:01 2026")
    assert same_start("Wed Mar  4 09:12:00 2026", "Thu Mar  5 09:12:00 2026") is False
    assert same_start(100, 100)
    assert same_start(100, 101) is False


def test_what_cannot_be_compared_is_unknown():
    assert same_start(None, 100) is None
    assert same_start(100, "Wed Mar  4 09:12:00 2026") is None
    assert same_start("Mi 4. Mär", "Do 5. Mär") is None
    assert not started_before(None, 100)


@given(st.text(max_size=200), st.lists(st.sampled_from(["pid", "lstart", "comm", "args", "x"])))
def test_no_text_breaks_the_reading(text, columns):
    read_ps(text, columns or ("pid",))
    read_ps(LINE + text, columns or ("pid",))
    ps_columns(text)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_no_facts_break_the_reading(listed):
    read_facts(listed)
    read_facts([{"pid": listed, "start_ticks": listed}])
