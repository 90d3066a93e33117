"""Every file under configs/ can be read, and every sweep planned and shown, as it is shipped."""

from __future__ import annotations

import io
import json
import re
import shlex
from typing import Any

import pytest
from rich.console import Console

from configs.find import stem
from configs.read import (
    SHIPPED,
    every_file,
    read_host,
    read_level_set,
    read_patch,
    read_sweep,
    to_yaml,
)
from flows.question import pose
from flows.show import plan_text
from tasks.launch import engine_argv
from tests.sweeps import HOST, TEXT

SWEEPS = [stem(path) for path in every_file("sweeps")]


def text_of(question) -> str:
    out = io.StringIO()
    Console(file=out, width=100, soft_wrap=True, highlight=False).print(plan_text(question))
    return out.getvalue()


@pytest.fixture
def hosts_filled_in(tmp_path, monkeypatch):
    """A working folder in which every example of a host has been copied, as its first line asks."""
    folder = tmp_path / "configs" / "hosts"
    folder.mkdir(parents=True)
    for path in every_file("hosts"):
        (folder / f"{stem(path)}.yaml").write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_no_file_is_left_out():
    rooms: dict[str, Any] = {
        "factors": read_level_set,
        "hosts": read_host,
        "patches": read_patch,
        "sweeps": read_sweep,
    }
    found = {path for room in rooms for path in every_file(room)}
    found |= {SHIPPED / "notices.yaml.example"}  # tests/test_notices.py reads it
    assert found == {*SHIPPED.rglob("*.yaml"), *SHIPPED.rglob("*.yaml.example")}
    for room, read in rooms.items():
        for path in every_file(room):
            assert read(str(path)).name == stem(path)


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_is_planned_without_a_warning(name, hosts_filled_in):
    question = pose(name)
    assert question.plan.trials
    assert question.warnings == ()


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_reads_back_as_itself(name, tmp_path):
    sweep = read_sweep(name)
    path = tmp_path / f"{name}.yaml"
    path.write_text(to_yaml(sweep), encoding="utf-8")
    assert read_sweep(str(path)) == sweep


@pytest.mark.parametrize("name", SWEEPS)
def test_a_plan_fits_100_columns_and_starts_with_the_baseline(name, hosts_filled_in):
    question = pose(name)
    lines = text_of(question).splitlines()
    assert max(map(len, lines)) <= 100
    sweep = question.sweep
    heads = [line for line in lines if line.split("+")[0].split("  ")[0] in sweep.arms]
    arms = [sweep.baseline, *(arm for arm in sweep.arms if arm != sweep.baseline)]
    names = (re.split(r"\+|  \(", head)[0] for head in heads)
    assert list(dict.fromkeys(names)) == arms
    first = [next(iter(levels)) for levels in sweep.factors.values()]
    assert heads[0].startswith("+".join([sweep.baseline, *first]))


def test_a_shown_command_can_be_pasted_into_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    host = tmp_path / "configs" / "hosts" / "box.yaml"
    host.parent.mkdir(parents=True)
    host.write_text(json.dumps(HOST | {"port": 30000, "env_from": ["HF_TOKEN"]}))
    (tmp_path / "s.yaml").write_text(
        TEXT.replace("/models/target", "/models/k 25 $(touch x); echo", 1)
    )
    question = pose("s.yaml")
    shown = text_of(question)
    block = shown.split("\na+ll\n")[1].split("\n  + ")[0]
    words = shlex.split(block.replace("\\\n", " "))
    assert words[:4] == ["SPT_NOENV=1", "PYTHONUNBUFFERED=1", "NCCL_PROTO=LL", "HF_TOKEN=***"]
    assert words[4:] == engine_argv(
        question.sweep, question.hosts["box"], "a", {"nccl": "ll"}, port=30000
    )
    assert "  + --speculative-draft-model-path /models/a\n" in shown
    assert "warning: engine.model: path contains shell characters" in shown
