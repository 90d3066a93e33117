"""Before a launch only what is ours is reaped; everything else on the GPUs is named and left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasks.cleanup import CleanupPlan, plan_cleanup
from tasks.process_list import Process
from tasks.processes import Leader
from tasks.smi_csv import GpuApp

ME, OTHER = 1000, 1001
LAUNCHER = Process(pid=10, ppid=1, pgid=10, sid=10, uid=ME, start=1, marker="trial-a", comm="py")
SCHEDULER = Process(pid=11, ppid=10, pgid=10, sid=10, uid=ME, start=2, comm="sglang::schedul")
TRAINING = Process(pid=20, ppid=1, pgid=20, sid=20, uid=ME, start=3, comm="train", user="ana")
STRANGER = Process(pid=30, ppid=1, pgid=30, sid=30, uid=OTHER, start=4, comm="vllm", user="bo")


def plan(*processes: Process, apps: tuple[int, ...] = (), **more: object) -> CleanupPlan:
    holders = [GpuApp(pid=pid) for pid in apps]
    return plan_cleanup(processes, holders, own_uid=ME, **more)  # type: ignore[arg-type]


def reaped(found: CleanupPlan) -> list[int]:
    return sorted(named.pid for named in found.reap)


def test_a_marked_leftover_goes_with_its_children():
    found = plan(LAUNCHER, SCHEDULER, apps=(11,))
    assert reaped(found) == [10, 11]
    assert not found.refused


def test_each_target_carries_its_start_so_that_a_reused_pid_is_spared():
    found = plan(LAUNCHER, SCHEDULER)
    assert {(n.pid, n.start) for n in found.reap} == {(10, 1), (11, 2)}


def test_children_whose_environment_was_wiped_are_found_by_session():
    orphan = Process(pid=12, ppid=1, pgid=12, sid=10, uid=ME, start=5)
    assert reaped(plan(LAUNCHER, orphan)) == [10, 12]


def test_a_state_file_finds_a_tree_without_any_marker():
    found = plan(SCHEDULER, leaders=[Leader(pid=10, start=1, pgid=10, sid=10)])
    assert reaped(found) == [11]


def test_our_users_other_work_is_named_and_left_alone():
    found = plan(LAUNCHER, TRAINING, apps=(20,))
    assert reaped(found) == [10]
    assert found.refused
    assert [n.pid for n in found.foreign] == [20]
    assert "train (pid 20, user ana)" in found.reasons[0]


def test_on_a_rented_host_every_compute_process_of_ours_goes_but_nobody_elses():
    found = plan(TRAINING, STRANGER, apps=(20, 30), owns_gpus=True)
    assert reaped(found) == [20]
    assert [n.pid for n in found.foreign] == [30]


def test_on_a_rented_host_the_launcher_above_goes_too_and_the_shell_stays():
    shell = Process(pid=5, ppid=1, uid=ME, start=1, comm="bash", args="-bash")
    launcher = Process(pid=10, ppid=5, uid=ME, start=2, args="python3 -m sglang.launch_server")
    child = Process(pid=11, ppid=10, uid=ME, start=3, comm="sglang::schedul")
    assert reaped(plan(shell, launcher, child, apps=(11,), owns_gpus=True)) == [10, 11]


def test_a_strangers_marker_is_no_licence():
    marked = Process(pid=31, uid=OTHER, marker="trial-a")
    found = plan(marked, apps=(31,))
    assert found.reap == ()
    assert [n.pid for n in found.foreign] == [31]


def test_only_the_named_markers_count_if_some_are_named():
    assert plan(LAUNCHER, markers=["trial-b"]).reap == ()
    assert reaped(plan(LAUNCHER, markers=["trial-a"])) == [10]


def test_the_running_trial_is_left_alone():
    found = plan(LAUNCHER, apps=(10,), current="trial-a")
    assert found == CleanupPlan()


def test_a_holder_that_no_list_shows_is_unknown():
    found = plan(apps=(99,))
    assert found.unknown == (99,)
    assert found.refused
    assert "99" in found.reasons[0]


def test_zombies_are_told_but_not_signalled():
    dead = Process(pid=12, ppid=1, uid=ME, state="Z", marker="trial-a")
    found = plan(dead)
    assert (found.reap, found.zombies) == ((), (12,))


SMALL = st.integers(1, 9)
PROCESSES = st.lists(
    st.builds(
        Process, pid=SMALL, ppid=SMALL, pgid=SMALL, sid=SMALL, uid=st.sampled_from([ME, OTHER]),
        start=SMALL, marker=st.none() | st.just("t"), comm=st.sampled_from(["x", "sglang::s"]),
    ),
    max_size=9,
    unique_by=lambda p: p.pid,
)  # fmt: skip


@given(PROCESSES, st.sets(SMALL), st.booleans())
def test_nobody_elses_process_is_ever_reaped_and_every_holder_is_accounted_for(
    processes, apps, owns
):
    found = plan(*processes, apps=tuple(apps), owns_gpus=owns)
    owner = {p.pid: p.uid for p in processes}
    assert all(owner[n.pid] == ME for n in found.reap)
    told = {n.pid for n in (*found.reap, *found.foreign)} | {*found.unknown, *found.zombies}
    assert apps <= told
