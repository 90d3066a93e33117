"""The agent travels as one file: the same bytes from the same sources, and nothing else needed."""

from __future__ import annotations

import ast
import hashlib
import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra import agent_file as packing
from infra.agent.__main__ import COMMANDS
from infra.agent_file import agent_file
from tests.agent_host import AgentHost

SOURCES = sorted((Path(packing.__file__).parent / "agent").glob("*.py"))


def test_the_same_sources_give_the_same_bytes():
    first, second = agent_file(), agent_file()
    assert first == second
    assert first.sha256 == hashlib.sha256(first.data).hexdigest()
    assert first.name == f"agent-{first.sha256[:12]}.pyz"


def test_times_and_bytecode_of_the_checkout_do_not_matter(tmp_path, monkeypatch):
    copy = tmp_path / "agent"
    shutil.copytree(SOURCES[0].parent, copy)
    (copy / "__pycache__").mkdir(exist_ok=True)
    (copy / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"x")
    for path in copy.iterdir():
        os.utime(path, (1, 1))
    before = agent_file()
    monkeypatch.setattr(packing, "_SOURCES", copy)
    assert agent_file() == before


def test_changed_sources_give_another_name(tmp_path, monkeypatch):
    copy = tmp_path / "agent"
    shutil.copytree(SOURCES[0].parent, copy)
    (copy / "ports.py").write_bytes((copy / "ports.py").read_bytes() + b"\n")
    before = agent_file()
    monkeypatch.setattr(packing, "_SOURCES", copy)
    assert agent_file().name != before.name


def test_the_archive_holds_the_sources_and_a_start():
    with zipfile.ZipFile(io.BytesIO(agent_file().data)) as archive:
        names = set(archive.namelist())
        assert names == {
            "__main__.py",
            "infra/__init__.py",
            *(f"infra/agent/{path.name}" for path in SOURCES),
        }
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_module_is_python_3_9_and_standard_library(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    assert not any(isinstance(node, ast.Match) for node in ast.walk(tree))
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module
            assert node.module.startswith("infra.agent") or "infra" not in node.module
            roots.add(node.module.partition(".")[0])
    # One module runs in the engine's environment only, and says so when torch is not there.
    more = {"torch"} if path.stem == "collective_rank" else set()
    assert roots <= {"infra", *sys.stdlib_module_names, *more}


def test_every_command_of_the_table_exists():
    for command in COMMANDS.values():
        module = importlib.import_module(f"infra.agent.{command.module}")
        assert callable(getattr(module, command.function))


def test_it_runs_where_no_dependency_can_be_imported(tmp_path):
    host = AgentHost(tmp_path)
    none = subprocess.run(
        [sys.executable, "-S", "-E", "-c", "import aiohttp"], check=False, capture_output=True
    )
    assert none.returncode != 0
    answer = host.call("hello")
    assert answer["uid"] == os.getuid()
    assert answer["version"] == agent_file().name


def old_pythons() -> list[str]:
    found = {shutil.which(f"python3.{minor}") for minor in (9, 10, 12, 13)}
    pyenv = Path.home() / ".pyenv" / "versions"
    found |= {str(path) for path in pyenv.glob("3.*/bin/python3") if path.exists()}
    return sorted(path for path in found if path)


def version_of(python: str) -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-S", "-c", code], check=False, capture_output=True, text=True)
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else (0,)


def test_it_supervises_under_the_oldest_python_it_promises(tmp_path):
    python = next((path for path in old_pythons() if version_of(path) == (3, 9)), None)
    if python is None:
        pytest.skip("no Python 3.9 on this machine")
    host = AgentHost(tmp_path, python)
    trial = host.trial()
    trial.launch("sh", "-c", "echo hello; exit 3")
    state = trial.wait_over()
    assert (state["phase"], state["exit_code"]) == ("exited", 3)
    result = trial.job("facts", "facts", {"python": python, "paths": [], "ports": []})
    assert result["engine_python"]["version"].startswith("3.9.")
    host.clean_up()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected one of"),
        (("nonsense", "{}"), "expected one of"),
        (("wait", "{"), "not JSON"),
        (("wait", "[]"), "not a JSON object"),
        (("wait", "{}"), "missing ['dir', 'offset']"),
        (("port", '{"prots": []}'), "unknown ['prots']"),
    ],
)
def test_a_wrong_request_is_refused_with_a_reason(tmp_path, words, said):
    done = AgentHost(tmp_path).run(*words)
    assert done.returncode == 10
    answer = json.loads(done.stdout)
    assert answer["error"] == "bad_request"
    assert said in answer["message"]


def test_a_root_is_made_for_us_alone_and_a_foreign_one_is_refused(tmp_path):
    host = AgentHost(tmp_path)
    root = tmp_path / "a" / "b"
    host.call("hello", root=str(root))
    assert root.stat().st_mode & 0o777 == 0o700
    assert root.parent.stat().st_mode & 0o777 == 0o700
    foreign = "/proc/1" if os.getuid() else str(tmp_path / "foreign")
    if not os.getuid():
        (tmp_path / "foreign").mkdir()
        os.chown(foreign, 12345, 12345)
    answer = host.refusal("claim", root=foreign, holder="me", lease_s=1)
    assert answer["error"] == "foreign_folder"
