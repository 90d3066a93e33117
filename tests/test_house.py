"""Rules of the house that no linter knows."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("flows", "tasks", "infra", "configs")
MODULES = sorted(
    path
    for room in ROOMS
    for path in (ROOT / room).rglob("*.py")
    if "__pycache__" not in path.parts
)
NO_ROOMS = {"utils", "common", "helpers", "core", "base", "manager", "managers", "misc"}


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_every_module_is_short_and_says_what_it_is(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 300, "find the second idea in it"
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring, "a module opens with its charter"
    assert docstring.splitlines()[0].endswith((".", "?", ":", ";")), "one sentence first"


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_no_module_is_called_after_nothing(path):
    assert path.stem not in NO_ROOMS
    assert path.stem == "__init__" or path.stem not in sys.stdlib_module_names


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_this_repositorys_own(room):
    """A distribution that ships a package of the same name would shadow ours."""
    found = importlib.import_module(room).__file__
    assert found is not None
    assert Path(found).parent == ROOT / room


def test_nothing_excuses_itself():
    """Notes for later and stubs do not land."""
    words = ["TO" + "DO", "FIX" + "ME", "raise NotImplementedError"]
    said = [
        f"{ids(path)}:{number}"
        for path in MODULES
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if any(word in line for word in words)
    ]
    assert said == []


def test_plan_and_compare_load_neither_prefect_nor_mlflow():
    """They cost seconds, and a plan must feel instant."""
    code = (
        "import sys, flows.cli, flows.question, flows.show, flows.runs, tasks.reporting\n"
        "flows.question.pose('rehearsal')\n"
        "bad = {'prefect', 'mlflow', 'fabric', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_lock_holds_every_direct_dependency_with_hashes():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["rehearsal"],
        *project["dependency-groups"]["dev"],
    ]
    lock = (ROOT / "requirements.lock").read_text().lower().replace("_", "-")
    for requirement in wanted:
        name = requirement.split(">")[0].split("[")[0].split("=")[0].strip().lower()
        assert f"\n{re.sub('[._]', '-', name)}==" in f"\n{lock}", name
    pinned = [line for line in lock.splitlines() if "==" in line and not line.startswith(" ")]
    assert lock.count("--hash=sha256:") >= len(pinned)


def test_the_lock_of_the_site_holds_its_dependencies_with_hashes():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["docs"]
    lock = (ROOT / "docs" / "site" / "requirements.lock").read_text()
    assert [name for name in wanted if f"\n{re.split('[<>=]', name)[0]}==" not in f"\n{lock}"] == []
    pinned = [line for line in lock.splitlines() if "==" in line and not line.startswith(" ")]
    assert lock.count("--hash=sha256:") >= len(pinned)


def test_the_controller_installs_no_cuda():
    lock = (ROOT / "requirements.lock").read_text().lower()
    assert not [line for line in lock.splitlines() if line.startswith(("torch==", "nvidia-"))]
