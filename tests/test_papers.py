"""What the papers promise: links lead somewhere, examples are accepted, commands exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

from configs.host import AddressFile, Host, Ssh
from configs.level_sets import LevelSet
from configs.nodes import all_nodes
from configs.notices import Notices
from configs.patch import Patch
from configs.probe import Profile, Stream
from configs.read import parse, parse_document, parse_sweep
from configs.reference import FOLDER, reference
from configs.sweep import Arm, Patience, Sglang, Sweep
from flows.question import pose
from tasks.check_table import GUARDS
from tasks.compare import compare
from tasks.decision import interval, percent
from tests import builders
from tests.sweeps import HOST, write_host

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


def host_files(folder: Path, names: tuple[str, ...]) -> None:
    """A host of eight GPUs under each of these names, but for those that are shipped."""
    for number, name in enumerate(names):
        if name != "rehearsal":
            # Machines of their own, which reach each other: some of them serve one model together.
            machine = {**HOST["connect"], "host": f"{name}.example.org"}
            write_host(folder, name=name, connect=machine, address=f"10.0.0.{number + 1}")


@pytest.mark.parametrize("text", examples("sweep"))
def test_a_sweep_in_the_papers_is_planned(text: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep = parse_sweep(text, "paper")
    host_files(tmp_path, all_nodes(sweep.hosts))
    assert pose(sweep).plan.trials


WHOLE = """
name: whole
question: Is this a sweep?
hosts: [box]
engine:
  kind: sglang
  model: /m
  flags: {tp-size: 8, max-running-requests: 64, cuda-graph-max-bs: 64}
baseline: base
arms:
  base: {}
  ours: {speculation: {kind: eagle3, drafter: /d, num_steps: 3, topk: 1, draft_tokens: 4}}
probes:
  load: {kind: stream, prompts: mixed, concurrency: [1, 8]}
"""
CROSSED = """
factors:
  nccl: {default: {}, ll: {NCCL_PROTO: LL}, ll-8: {NCCL_PROTO: LL, NCCL_MIN_CTAS: "8"}}
  attention: {triton: {attention-backend: triton}, flashinfer: {attention-backend: flashinfer}}
"""


@pytest.mark.parametrize("text", examples("part of a sweep"))
def test_a_part_of_a_sweep_in_the_papers_fits_into_a_whole_one(
    text: str, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    part = parse_document(text, "paper").data
    whole = parse_document(WHOLE, "whole").data
    if {"exclude", "combinations", "screen"} & set(part):
        whole |= parse_document(CROSSED, "crossed").data
    host_files(tmp_path, ("box",))
    assert pose(parse_sweep(json.dumps(whole | part), "paper")).plan.trials


def test_every_yaml_in_the_papers_says_what_it_is():
    kinds = ("sweep", "part of a sweep", "host", "patch", "level set", "notices")
    tested = {f"yaml {kind}" for kind in kinds}
    untold = [
        f"{path.relative_to(ROOT)}: {found[2]}"
        for path in PAPERS
        for found in FENCE.finditer(path.read_text(encoding="utf-8"))
        if found[2].startswith("yaml") and found[2] not in tested
    ]
    assert untold == [], "say behind the fence what it is, and let a test above hold that kind"


def test_the_reference_is_what_the_models_say():
    """`make reference` writes it anew."""
    pages = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.md")}
    assert pages == reference()


def test_every_key_of_every_model_has_a_meaning_there():
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\\\)\|", line)[1:-1]]
        for text in reference().values()
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) > 100
    assert [row[0] for row in rows if not row[3]] == []
    sections = [
        line for text in reference().values() for line in re.findall("^## .*$", text, re.MULTILINE)
    ]
    assert len(sections) == len(set(sections)), "two models share a heading"


def test_the_example_of_a_verdict_is_what_the_arithmetic_says():
    page = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    assert len(rows) == 3
    speeds = {
        arm: {int(row[0]): {8: float(row[1 + i])} for row in rows}
        for i, arm in enumerate(("base", "ours", "theirs"))
    }
    trials = [r for arm, by_block in speeds.items() for r in builders.speeds(arm, by_block, 2.5)]
    for cell in compare(trials, metrics=["user_tok_s"]).cells:
        more = f" ({cell.further_blocks} more)" if cell.verdict == "undecided" else ""
        said = f"`{percent(cell.ratio)} {interval(cell)}` | **{cell.verdict}{more}**"
        assert f"| {cell.arm} | {said} |" in page


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
    assert "prefect deployment run eagle3-sweep/eagle3-sweep\n" in text
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
    groups = settings["dependency-groups"]
    wanted = [*settings["project"]["dependencies"], *groups["dev"], *groups["docs"]]
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
