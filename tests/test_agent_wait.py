"""One poll brings everything new: log bytes by offset, state, jobs; and keeps lease and claim."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from infra.agent import claim, folders, lease, processes
from infra.agent.refusal import Refusal
from infra.agent.wait import View, _urgent
from tests.agent_host import BARE, AgentHost, Trial, until


@pytest.fixture
def host(tmp_path):
    host = AgentHost(tmp_path)
    yield host
    host.clean_up()


@pytest.fixture
def trial(host):
    return host.trial()


def log_of(answer) -> bytes:
    return base64.b64decode(answer["log"])


def test_before_anything_there_is_no_state_and_no_log(trial):
    answer = trial.wait(0)
    assert answer["state"] is None
    assert (answer["engine_alive"], answer["supervisor_alive"]) == (False, False)
    assert (log_of(answer), answer["offset"], answer["log_size"]) == (b"", 0, 0)
    assert answer["boot_id"] == processes.boot_id()


def test_a_folder_that_is_not_there_is_said(host):
    assert host.refusal("wait", dir=str(host.root / "x"), offset=0)["error"] == "no_such_folder"


def test_bytes_come_as_they_are_from_the_offset_in_pieces(trial):
    raw = b"\xff\xfe loading 10%\rloading 20%\r\n\x1b[31mred\x1b[0m \xc3"
    (trial.path / "server.log").write_bytes(raw)
    whole, offset = b"", 0
    while offset < len(raw):
        answer = trial.wait(offset, max_bytes=10)
        assert len(log_of(answer)) <= 10
        assert answer["log_size"] == len(raw)
        whole, offset = whole + log_of(answer), answer["offset"]
    assert whole == raw


def test_a_shrunken_log_is_read_again_and_said(trial):
    (trial.path / "server.log").write_bytes(b"new")
    answer = trial.wait(100)
    assert (answer["truncated"], log_of(answer), answer["offset"]) == (True, b"new", 3)


@pytest.mark.parametrize("offset", [None, 1 << 62])
def test_whoever_does_not_want_the_log_gets_none_and_is_not_woken_by_it(trial, offset):
    (trial.path / "server.log").write_bytes(b"text")
    seen = trial.wait(offset)["seen"]
    began = time.monotonic()
    answer = trial.wait(offset, seen=seen, timeout_s=0.3)
    assert time.monotonic() - began >= 0.3
    assert (answer["log"], answer["truncated"], answer["log_size"]) == ("", False, 4)


def polling(trial: Trial, **request: Any) -> subprocess.Popen[bytes]:
    """A wait under way, and when it began."""
    words = json.dumps({"dir": str(trial.path), **request})
    call = [sys.executable, *BARE, str(trial.host.agent), "wait", words]
    return subprocess.Popen(call, stdout=subprocess.PIPE)


def answer_of(poll: subprocess.Popen[bytes]) -> Any:
    return json.loads(poll.communicate(timeout=60)[0])


@pytest.mark.alone
def test_a_wait_without_news_ends_with_its_time(trial):
    seen = trial.wait(0)["seen"]
    began = time.monotonic()
    answer = trial.wait(0, seen=seen, timeout_s=0.4)
    assert 0.4 <= time.monotonic() - began < 1.5
    assert answer["seen"] == seen


@pytest.mark.alone
def test_growth_ends_the_wait(trial):
    seen = trial.wait(0)["seen"]
    poll = polling(trial, offset=0, seen=seen, timeout_s=2.0)
    began = time.monotonic()
    (trial.path / "server.log").write_bytes(b"x")
    assert log_of(answer_of(poll)) == b"x"
    assert time.monotonic() - began < 1.5


@pytest.mark.alone
def test_quiet_waits_gather_the_log_but_not_the_end(trial):
    seen = trial.wait(0)["seen"]
    (trial.path / "server.log").write_bytes(b"x")
    began = time.monotonic()
    answer = trial.wait(0, seen=seen, timeout_s=2.0, quiet_s=0.5)
    assert log_of(answer) == b"x"
    assert time.monotonic() - began >= 0.5
    poll = polling(trial, offset=0, seen=seen, timeout_s=2.0, quiet_s=2.0)
    began = time.monotonic()
    trial.launch("sh", "-c", "sleep 1000")
    assert answer_of(poll)["engine_alive"] is True
    assert time.monotonic() - began < 1.5


def test_the_answer_comes_as_one_line_of_json(host, trial):
    done = host.run("wait", json.dumps({"dir": str(trial.path), "offset": 0}))
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout)["ok"] is True


@pytest.mark.alone
def test_nothing_seen_means_everything_is_news(trial):
    began = time.monotonic()
    trial.wait(0, timeout_s=2.0)
    assert time.monotonic() - began < 1.0


def test_a_wait_renews_lease_and_claim(host, trial):
    held = {"root": str(host.root), "holder": "me", "lease_s": 50}
    now = time.monotonic()
    trial.wait(0, lease_s=90, claim=held)
    assert 85 < (lease.deadline(str(trial.path)) or 0) - now < 100
    kept = json.loads((host.root / "claim.json").read_text())
    assert (kept["holder"], kept["deadline_monotonic"] - now > 45) == ("me", True)


def test_a_lost_claim_refuses_the_wait_and_leaves_the_lease_alone(host, trial):
    lease.renew(str(trial.path), 5)
    before = lease.deadline(str(trial.path))
    host.call("claim", root=str(host.root), holder="other", lease_s=50, note="their night")
    answer = host.refusal(
        "wait",
        dir=str(trial.path),
        offset=0,
        lease_s=90,
        claim={"root": str(host.root), "holder": "me", "lease_s": 50},
    )
    assert (answer["error"], answer["holder"], answer["note"]) == (
        "claimed",
        "other",
        "their night",
    )
    assert lease.deadline(str(trial.path)) == before


# The claim itself.


def test_a_claim_is_refused_to_others_and_renewed_for_its_holder(tmp_path):
    root = str(tmp_path)
    assert claim.take(root, "a", 60, "sweep one")["renewed"] is False
    assert claim.take(root, "a", 60, None)["renewed"] is True
    with pytest.raises(Refusal) as refused:
        claim.take(root, "b", 60, None)
    more = refused.value.more
    assert (refused.value.error, more["holder"], more["note"]) == ("claimed", "a", "sweep one")
    assert more["age_s"] >= 0
    assert 55 < more["left_s"] <= 60


def test_a_silent_holder_is_taken_over_and_named(tmp_path):
    root = str(tmp_path)
    claim.take(root, "a", -1, "lost laptop")
    took = claim.take(root, "b", 60, None)["took_over"]
    assert (took["reason"], took["holder"], took["note"]) == ("expired", "a", "lost laptop")


def test_a_holder_of_another_boot_is_taken_over_whatever_its_deadline(tmp_path):
    root = str(tmp_path)
    claim.take(root, "a", 1e6, None)
    path = tmp_path / "claim.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "other"}))
    took = claim.take(root, "b", 60, None)["took_over"]
    assert (took["reason"], took["holder"], took["age_s"]) == ("rebooted", "a", None)


def test_a_holder_that_was_silent_gets_its_own_claim_back_without_fuss(tmp_path):
    claim.take(str(tmp_path), "a", -1, None)
    assert claim.take(str(tmp_path), "a", 60, None)["took_over"] is None


def test_release_is_safe_to_repeat_and_frees_only_ones_own(tmp_path):
    root = str(tmp_path)
    claim.take(root, "a", 60, None)
    assert claim.release({"root": root, "holder": "b"}) == {"released": False}
    assert claim.release({"root": root, "holder": "a"}) == {"released": True}
    assert claim.release({"root": root, "holder": "a"}) == {"released": False}
    assert claim.release({"root": root + "/none", "holder": "a"}) == {"released": False}
    assert claim.take(root, "b", 60, None)["took_over"] is None


def test_only_one_of_many_claims_at_once(host):
    words = [
        json.dumps({"root": str(host.root), "holder": f"h{i}", "lease_s": 60}) for i in range(4)
    ]
    base = [sys.executable, *BARE, str(host.agent), "claim"]
    calls = [subprocess.Popen([*base, word], stdout=subprocess.PIPE) for word in words]
    assert sorted(answer_of(call)["ok"] for call in calls) == [False, False, False, True]


# Files that are whole or absent.


def test_a_full_disk_is_said_and_the_old_file_stays(tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    folders.write_json(str(path), {"a": 1})

    def full(fd, data):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(folders, "write_all", full)
    with pytest.raises(Refusal) as refused:
        folders.write_json(str(path), {"a": 2})
    assert refused.value.error == "disk_full"
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder) -> None:
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def test_an_engine_that_fills_the_disk_still_ends_and_is_recorded_later(small_disk):
    host = AgentHost(small_disk.parent)
    trial = host.trial()
    trial.path = small_disk / trial.name
    trial.path.mkdir()
    state = trial.launch("sh", "-c", "sleep 1000", lease_s=0.6)
    fill(small_disk)
    assert host.refusal("wait", dir=str(trial.path), offset=0, lease_s=60)["error"] == "disk_full"
    until(lambda: not processes.alive(state["engine"]))
    assert trial.state["phase"] == "running"
    (small_disk / "filler").unlink()
    over = trial.wait_over()
    assert (over["phase"], over["end_reason"]) == ("stopped", "lease_expired")
    host.clean_up()


def test_an_engine_that_cannot_be_recorded_does_not_run(small_disk):
    host = AgentHost(small_disk.parent)
    trial = host.trial()
    trial.path = small_disk / trial.name
    trial.path.mkdir()
    trial.put_launch("sh", "-c", "sleep 1000")
    fill(small_disk)
    answer = host.refusal("supervise", dir=str(trial.path), root=str(host.root))
    assert answer["error"] == "disk_full"
    assert not any(
        e.marker == trial.name for e in processes.environments(processes.table().values()).values()
    )


def begin(trial: Trial, **request: Any) -> Any:
    start = {"name": "survey", "job": "facts", "request": {"paths": [], **request}}
    request = {"dir": str(trial.path), "offset": None, "start": start, "timeout_s": 2.0}
    return trial.host.call("wait", **request)


@pytest.mark.alone
def test_one_poll_begins_a_job_and_brings_its_end(trial):
    began = time.monotonic()
    answer = begin(trial)
    assert answer["job"]["result"]["ok"] is True
    assert time.monotonic() - began < 1.9


@pytest.mark.alone
def test_a_job_that_is_over_already_is_told_at_once(trial):
    first = begin(trial)["job"]
    began = time.monotonic()
    again = begin(trial)["job"]
    assert time.monotonic() - began < 1.0
    assert again["result"] == first["result"]


def test_a_long_job_is_waited_for_and_the_next_poll_hears_of_its_end(trial):
    start = {"name": "reap", "job": "reap", "request": {"gpu_wait_s": 0}}
    seen = trial.wait(None)["seen"]
    request = {"dir": str(trial.path), "offset": None, "start": start, "seen": seen}
    answer = trial.host.call("wait", **request, timeout_s=0.0)
    while answer["job"]["result"] is None:
        answer = trial.wait(None, job="reap", seen=answer["seen"], timeout_s=2.0)
    assert answer["job"]["result"]["ok"] is True


def test_who_waits_for_a_job_alone_hears_of_its_end_and_not_of_the_engines():
    before = View("1", engine=True, supervisor=True, job="p1", job_alive=True, result="-")
    ended = before._replace(state="2", engine=False, job="p2")
    assert _urgent(ended, before.token(), job_alone=False)
    assert not _urgent(ended, before.token(), job_alone=True)
    assert _urgent(ended._replace(result="3"), before.token(), job_alone=True)
    assert _urgent(ended._replace(job_alive=False), before.token(), job_alone=True)
