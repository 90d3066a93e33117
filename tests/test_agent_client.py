"""The job that runs somebody else's load generator: what it gives it, and how it ends it."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent_host import AgentHost, is_alive, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.agent_host import Trial

SLOW = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(f"pid={child.pid}", flush=True)
time.sleep(60)
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentHost]:
    host = AgentHost(tmp_path)
    yield host
    host.clean_up()


@pytest.fixture
def trial(host: AgentHost) -> Trial:
    return host.trial()


def asked(code: str, *words: str, **more: Any) -> dict[str, Any]:
    default: dict[str, Any] = {"env": {}, "files": {}, "headers_path": None, "timeout_s": 20.0}
    return {"argv": [sys.executable, "-c", code, *words], **default, **more}


def test_it_runs_in_the_job_s_folder_with_its_files_and_tells_how_it_ended(trial: Trial) -> None:
    code = "import os, sys; print(open('in.jsonl').read(), os.environ['A'], sys.argv[1]); "
    code += "open('out', 'w').write('x'); sys.exit(3)"
    files = {"in.jsonl": "späte Wörter"}
    result = trial.job("c", "client", asked(code, "a b", env={"A": "1"}, files=files))
    assert (result["ok"], result["exit"]) == (True, 3)
    assert result["said"].strip() == "späte Wörter 1 a b"
    folder = trial.path / "jobs" / "c"
    assert (folder / "out").read_text() == "x"
    assert (folder / "client.log").read_text().strip() == result["said"].strip()
    for name in ("in.jsonl", "client.log"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600


def test_the_engine_s_key_reaches_it_through_the_environment_alone(
    trial: Trial, tmp_path: Path
) -> None:
    (tmp_path / "headers.json").write_text(json.dumps({"Authorization": "Bearer s3cret-word"}))
    code = "import os; print(os.environ['OPENAI_API_KEY'][::-1])"
    headers = str(tmp_path / "headers.json")
    result = trial.job("c", "client", asked(code, headers_path=headers))
    assert result["said"].strip() == "drow-terc3s"
    kept = [path for path in (trial.path / "jobs" / "c").iterdir() if path.is_file()]
    assert not [path for path in kept if b"s3cret-word" in path.read_bytes()]


def test_one_that_does_not_end_is_ended_with_what_it_started(trial: Trial) -> None:
    result = trial.job("c", "client", asked(SLOW, timeout_s=1.5))
    assert (result["ok"], result["error"]) == (False, "deadline")
    assert "it did not end in time: pid=" in result["message"]
    child = int(result["message"].rpartition("=")[2])
    until(lambda: not is_alive(child))


def test_it_does_not_outlive_the_engine(host: AgentHost, trial: Trial) -> None:
    trial.launch(sys.executable, "-c", "import time; time.sleep(60)")
    engine = trial.state["engine"]
    host.call("start", dir=str(trial.path), name="c", job="client", request=asked(SLOW))
    log = trial.path / "jobs" / "c" / "client.log"
    child = int(until(lambda: log.exists() and log.read_text().strip()).partition("=")[2])
    os.kill(engine["pid"], signal.SIGKILL)
    result = until(lambda: trial.wait(None, job="c", seen="-", timeout_s=0.0)["job"]["result"])
    assert (result["ok"], result["error"]) == (False, "engine_gone")
    assert str(engine["pid"]) in result["message"]
    until(lambda: not is_alive(child))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"argv": ["/no/such/python"]}, "not_started"),
        ({"files": {"../x": "y"}}, "bad_name"),
        ({"headers_path": "/no/such/file"}, "no_headers"),
    ],
)
def test_what_cannot_be_started_is_said(trial: Trial, change: dict[str, Any], error: str) -> None:
    result = trial.job("c", "client", asked("print(1)", **change))
    assert (result["ok"], result["error"]) == (False, error)
