"""What the papers promise: links lead somewhere, examples are accepted, commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

from configs.host import AddressFile, Host, Ssh
from configs.level_sets import LevelSet
from configs.notices import Notices
from configs.patch import Patch
from configs.probe import Profile, Stream
from configs.read import parse, parse_sweep
from configs.sweep import Arm, Patience, Sglang, Sweep
from tasks.check_table import GUARDS

ROOT = Path(__file__).parents[1]
FOLDERS = ("configs", "docs", "flows", "infra", "tasks", "tests")
PAPERS = sorted(
    [
        *ROOT.glob("*.md"),
        *(
            path
            for folder in FOLDERS
            for path in (ROOT / folder).rglob("*.md")
            if "fixtures" not in path.parts
        ),
    ]
)
FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
KEYS = {
    "hosts": [k for m in (Host, Ssh, AddressFile) for k in m.model_fields],
    "sweeps": [k for m in (Sweep, Sglang, Arm, Stream, Profile, Patience) for k in m.model_fields],
}
SPOTS = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in PAPERS]


def prose(text: str) -> str:
    """A paper without its code, whose brackets are no links."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def examples(kind: str) -> list[object]:
    """Every block that is fenced as ```yaml <kind>."""
    return [
        pytest.param(found[3], id=f"{path.relative_to(ROOT)}-{number}")
        for path in PAPERS
        for number, found in enumerate(FENCE.finditer(path.read_text(encoding="utf-8")))
        if found[2] == f"yaml {kind}"
    ]


def anchors(path: Path) -> set[str]:
    """The headings of a paper as its links name them."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("paper", SPOTS)
def test_every_relative_link_leads_somewhere(paper: Path):
    broken = []
    for link in LINK.findall(prose(paper.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = paper.parent / name if name else paper
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("paper", SPOTS)
def test_no_paper_names_a_path_of_somebodys_machine(paper: Path):
    text = paper.read_text(encoding="utf-8")
    assert not re.findall(r"(?<![\w.~/-])/(?:root|work|Users/\w+|home/\w+)/[^\s)`]*", text)


@pytest.mark.parametrize("text", examples("sweep"))
def test_a_sweep_in_the_papers_is_accepted(text: str):
    assert parse_sweep(text, "paper").arms


@pytest.mark.parametrize("text", examples("host"))
def test_a_host_in_the_papers_is_accepted(text: str):
    assert parse(Host, text, "paper").gpus > 0


@pytest.mark.parametrize("text", examples("notices"))
def test_notices_in_the_papers_are_accepted(text: str):
    assert parse(Notices, text, "paper").morning


@pytest.mark.parametrize("text", examples("patch"))
def test_a_patch_in_the_papers_is_accepted(text: str):
    assert parse(Patch, text, "paper").methods


@pytest.mark.parametrize("text", examples("level set"))
def test_a_level_set_in_the_papers_is_accepted(text: str):
    assert parse(LevelSet, text, "paper").levels


def test_the_papers_hold_examples_of_hosts_and_sweeps():
    assert len(examples("host")) >= 2
    assert examples("sweep")


def test_the_readme_spells_both_ways_to_run_the_deployment():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "prefect deployment run eagle3-sweep/eagle3-sweep --watch" in text
    assert "prefect deployment run eagle3-sweep/eagle3-sweep -p sweep=my-question" in text
    spelt = re.findall(r"prefect deployment run (\S+)", text)
    assert set(spelt) == {"eagle3-sweep/eagle3-sweep"}


def test_every_command_in_the_papers_exists():
    asked = [sys.executable, "-c", "from flows.cli import main; main()", "--help"]
    said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    known = set(re.findall(r"^\W{0,3}([a-z]+)\s{2,}", said.stdout, re.MULTILINE))
    assert {"plan", "run", "compare"} <= known
    named = {
        word
        for path in PAPERS
        for word in re.findall(
            r"(?:`|^ {4})eagle3-sweep ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert named <= known


def test_every_verb_in_the_papers_is_in_the_makefile():
    verbs = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        word
        for path in PAPERS
        for word in re.findall(
            r"(?:`|^ {4})make ([a-z-]+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert named <= verbs


def test_the_changelog_knows_this_version_or_what_comes_next():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert any(head == "Unreleased" or project["version"] in head for head in heads)


def test_every_direct_dependency_has_its_reason_on_the_page():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*settings["project"]["dependencies"], *settings["dependency-groups"]["dev"]]
    for extra in settings["project"]["optional-dependencies"].values():
        wanted += extra
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    names = [re.split(r"[<>=\[; ]", entry)[0] for entry in wanted]
    assert [name for name in names if name not in page] == []


def test_every_finding_is_explained():
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert [guard.name for guard in GUARDS if f"\n## {guard.name}\n" not in page] == []


@pytest.mark.parametrize("kind", ["hosts", "sweeps"])
def test_every_key_of_a_file_is_explained(kind: str):
    page = (ROOT / "docs" / f"{kind}.md").read_text(encoding="utf-8")
    assert [key for key in KEYS[kind] if f"`{key}`" not in page] == []


def test_pictures_are_small():
    sizes = {p.name: p.stat().st_size for p in (ROOT / "docs" / "images").glob("*")}
    assert sizes
    assert max(sizes.values()) < 300_000
