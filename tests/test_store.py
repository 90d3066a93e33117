"""The run folder is the truth: whole files, attempts in order, one process at a time."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra import store
from infra.run_locks import RunHeld
from infra.store import DiskFull, RunFolder, Store, read_json, write_bytes, write_json

REPOSITORY = Path(__file__).parents[1]


def run_folder(path: Path) -> RunFolder:
    write_json(path / "run.json", {"uid": "ab12", "pid": 4242})
    return RunFolder(path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_private_and_its_folders_are_made(tmp_path):
    write_json(tmp_path / "a" / "b" / "c.json", {"x": "é"})
    assert (tmp_path / "a" / "b" / "c.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert read_json(tmp_path / "a" / "b" / "c.json") == {"x": "é"}


def test_numbers_that_are_none_are_refused_and_leave_the_old_file(tmp_path):
    write_json(tmp_path / "r.json", {"rate": 1.5})
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_json(tmp_path / "r.json", {"rate": bad})
    assert read_json(tmp_path / "r.json") == {"rate": 1.5}
    assert names(tmp_path) == ["r.json"]


KILLED = """
import os, signal, sys
from infra.store import write_bytes
from pathlib import Path
def fsync(fd):
    os.kill(os.getpid(), signal.SIGKILL)
os.fsync = fsync
write_bytes(Path(sys.argv[1]), b"new" * 1000)
"""


def test_a_writer_that_is_killed_half_way_leaves_the_old_file(tmp_path):
    path = tmp_path / "record.json"
    write_bytes(path, b"old")
    done = subprocess.run([sys.executable, "-c", KILLED, path], cwd=REPOSITORY, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


def in_child(work) -> int:
    """The exit code of a forked child that does the work."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_full_disk_has_a_name_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "record.json"
    write_bytes(path, b"old")

    def work() -> int:
        try:
            write_bytes(path, b"x" * 5000)
        except DiskFull as error:
            return 0 if str(path) in str(error) else 2
        return 3

    assert in_child(work) == 0
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["record.json"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_growing_log_on_a_full_disk_has_the_same_name(tmp_path):
    folder = run_folder(tmp_path).next_attempt("t")

    def work() -> int:
        try:
            folder.append("server.log", b"x" * 5000)
        except DiskFull:
            return 0
        return 3

    assert in_child(work) == 0


def test_other_errors_of_the_disk_stay_what_they_are(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises((FileExistsError, NotADirectoryError)):
        write_bytes(tmp_path / "file" / "below", b"x")


def test_attempts_count_from_one_and_the_last_finished_one_is_the_record(tmp_path):
    run = run_folder(tmp_path)
    attempts = [run.next_attempt("b01-base") for _ in range(11)]
    assert [a.attempt for a in attempts] == list(range(1, 12))
    for number in (0, 8, 9):
        write_json(attempts[number].record, {"n": number})
    assert json.loads(run.records()["b01-base"]) == {"n": 9}
    assert not attempts[10].finished
    assert [folder.attempt for folder in run.trials()] == list(range(1, 12))


def test_trials_whose_names_look_like_attempts_are_kept_apart(tmp_path):
    run = run_folder(tmp_path)
    run.next_attempt("b01-x.a1")
    run.next_attempt("b01-x")
    found = [(folder.trial, folder.attempt) for folder in run.trials()]
    assert found == [("b01-x", 1), ("b01-x.a1", 1)]


def test_what_people_leave_lying_about_is_not_a_trial_nor_a_run(tmp_path):
    run = run_folder(tmp_path / "kimi" / "0001")
    run.next_attempt("t")
    for name in ("t.a1.bak", "t.a01", "notes", ".a1"):
        (run.path / "trials" / name).mkdir()
    for name in ("2026-old", "0002.bak"):
        (tmp_path / "kimi" / name).mkdir()
    assert [folder.path.name for folder in run.trials()] == ["t.a1"]
    assert Store(tmp_path).new_run("kimi").path.name == "0002"


def test_runs_sort_by_number_past_four_digits(tmp_path):
    for number in ("9999", "10000", "0002"):
        (tmp_path / "kimi" / number).mkdir(parents=True)
    assert [run.path.name for run in Store(tmp_path).runs("kimi")] == ["0002", "9999", "10000"]
    assert Store(tmp_path).new_run("kimi").path.name == "10001"


def test_the_latest_run_is_that_of_the_plan_asked_for(tmp_path):
    runs = Store(tmp_path)
    assert runs.latest("kimi") is None
    for digest in ("d1", "d2", "d1"):
        write_json(runs.new_run("kimi").path / "plan.json", {"digest": digest})
    runs.new_run("kimi")  # killed before it had a plan
    found = [runs.latest("kimi", digest) for digest in ("d2", "d1", None)]
    assert [run and run.id for run in found] == ["kimi-0002", "kimi-0003", "kimi-0003"]
    assert runs.latest("kimi", "d9") is None


def test_a_run_is_known_to_hosts_by_a_name_unique_over_controllers(tmp_path):
    run = run_folder(tmp_path / "kimi" / "0007")
    assert run.holder == "kimi-0007-ab12"
    assert run.marker(run.next_attempt("b01-base")) == "kimi-0007-ab12.b01-base.a1"


HOLD = """
import sys
from infra.store import RunFolder
from pathlib import Path
with RunFolder(Path(sys.argv[1])).alone():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_run_is_held_by_one_process_and_let_go_when_that_is_killed(tmp_path):
    run = run_folder(tmp_path / "kimi" / "0001")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, run.path],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(RunHeld, match=f"kimi-0001 is being run by process {holder.pid}"),
            run.alone(),
        ):
            pass
        holder.kill()
    with run.alone() as held:
        assert held is run


def test_samples_are_kept_compressed_the_same_bytes_for_the_same_rows(tmp_path):
    folders = [run_folder(tmp_path / n).next_attempt("t") for n in "ab"]
    for folder in folders:
        folder.samples("load.c8", b'{"id": 1}\n')
    packed = [(f.path / "samples" / "load.c8.jsonl.gz").read_bytes() for f in folders]
    assert packed[0] == packed[1]
    assert gzip.decompress(packed[0]) == b'{"id": 1}\n'


def test_a_missing_file_reads_as_nothing_and_a_list_too(tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    assert store.read_json(tmp_path / "none.json") == {}
    assert store.read_json(tmp_path / "list.json") == {}
