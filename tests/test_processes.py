"""Our tree is told from everyone else's by identity, and the next step never hits a stranger."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasks.process_list import Process
from tasks.processes import Leader, Split, belongs_to, split_by_leader, teardown_step

LEADER = Leader(pid=70, start=1000, pgid=70, sid=70)


def process(pid: int, ppid: int = 70, **more: object) -> Process:
    fields: dict[str, object] = {"pgid": 70, "sid": 70, "uid": 1000, "state": "S", "start": 1005}
    return Process(pid=pid, ppid=ppid, **{**fields, **more})  # type: ignore[arg-type]


def split(*processes: Process) -> Split:
    return split_by_leader(processes, LEADER, uid=1000)


def pids(processes: tuple[Process, ...]) -> list[int]:
    return [p.pid for p in processes]


def test_the_tree_is_ours_and_the_neighbour_is_not():
    divided = split(process(70, 1, start=1000), process(71), process(80, 1, pgid=80, sid=80))
    assert pids(divided.own) == [70, 71]
    assert pids(divided.foreign) == [80]


def test_orphans_of_a_dead_launcher_are_ours_by_group():
    divided = split(process(71, 1), process(72, 1, pgid=72))
    assert pids(divided.own) == [71, 72]
    assert teardown_step(divided, LEADER).action == "term_group_70"


def test_a_child_that_opened_its_own_session_is_ours_by_descent():
    divided = split(process(70, 1, start=1000), process(71), process(90, 71, pgid=90, sid=90))
    assert pids(divided.own) == [70, 71, 90]


def test_a_pid_that_was_given_away_again_is_nobody_of_ours():
    divided = split(process(70, 1, start=9000, comm="vim"), process(71, start=9001))
    assert divided.own == ()
    assert pids(divided.foreign) == [70, 71]
    assert teardown_step(divided, LEADER).action == "none"


def test_a_pid_without_a_start_proves_nothing():
    divided = split_by_leader([process(70, 1, start=1000)], Leader(pid=70), uid=1000)
    assert divided.own == ()


def test_another_users_process_in_our_group_is_not_ours():
    assert pids(split(process(70, 1, start=1000), process(71, uid=0)).own) == [70]


def test_a_shared_group_is_never_signalled_as_a_group():
    leader = Leader(pid=70, start=1000, pgid=5, sid=5)
    divided = split_by_leader(
        [process(70, 5, start=1000, pgid=5, sid=5), process(6, 5, pgid=5, sid=5)], leader, uid=1000
    )
    assert pids(divided.own) == [70]
    assert teardown_step(divided, leader).action == "term_pids"


def test_users_are_recognised_by_number_or_by_a_cut_name():
    assert belongs_to(process(1), "bo", 1000)
    assert not belongs_to(process(1), "bo", 1001)
    assert belongs_to(process(1, uid=None, user="alexand+"), "alexandra", None)
    assert not belongs_to(process(1, uid=None, user="+"), "alexandra", None)
    assert not belongs_to(process(1, uid=None), "ana", None)


def test_zombies_are_not_waited_for():
    divided = split(process(70, 1, start=1000, state="Zs"), process(71, state="Z"))
    step = teardown_step(divided, LEADER, gpu_free=True)
    assert pids(divided.zombies) == [70, 71]
    assert (step.action, step.released) == ("none", True)
    assert teardown_step(divided, LEADER, gpu_free=False).action == "wait_gpu_free"
    assert not teardown_step(divided, LEADER, gpu_free=False).released


def test_signals_grow_with_time():
    divided = split(process(70, 1, start=1000))
    assert teardown_step(divided, LEADER).action == "term_group_70"
    assert teardown_step(divided, LEADER, term_s_ago=5).action == "wait"
    assert teardown_step(divided, LEADER, term_s_ago=61).action == "kill_group_70"
    assert teardown_step(divided, LEADER, kill_s_ago=5).action == "wait"
    stuck = teardown_step(divided, LEADER, kill_s_ago=90)
    assert stuck.action == "give_up_report"
    assert "90 s after SIGKILL" in (stuck.reason or "")


def test_a_stopped_process_is_killed_because_term_does_not_reach_it():
    assert teardown_step(split(process(70, 1, start=1000, state="T")), LEADER).action == (
        "kill_group_70"
    )


def test_a_gpu_holder_that_no_list_shows_is_reported():
    step = teardown_step(split(process(70, 1, start=1000)), LEADER, gpu_pids=[70, 314])
    assert step.action == "report_other_namespace"
    assert step.foreign_gpu_pids == (314,)
    assert "314" in (step.reason or "")


def test_a_strangers_gpu_process_is_refused_by_name():
    step = teardown_step(split(process(80, 1, pgid=80, sid=80, user="bo")), LEADER, gpu_pids=[80])
    assert step.action == "refuse_foreign"
    assert "80 (bo)" in (step.reason or "")


SMALL = st.integers(1, 9)
PROCESSES = st.lists(
    st.builds(
        Process, pid=SMALL, ppid=SMALL, pgid=SMALL, sid=SMALL, uid=SMALL, start=SMALL,
        state=st.sampled_from("SRZDT"),
    ),
    max_size=9,
    unique_by=lambda p: p.pid,
)  # fmt: skip


@given(PROCESSES, st.builds(Leader, pid=SMALL, start=SMALL, pgid=SMALL, sid=SMALL), SMALL)
def test_nothing_of_another_user_is_ever_ours(processes, leader, uid):
    divided = split_by_leader(processes, leader, uid=uid)
    assert all(p.uid == uid for p in (*divided.own, *divided.zombies))
    assert not set(divided.own) & set(divided.foreign)
    teardown_step(divided, leader, gpu_pids=[1, 2])
