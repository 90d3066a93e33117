"""The installed engine is asked for its own options, so that a wrong flag costs seconds, not a load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from configs.problems import ConfigError
from flows.installed import hold_against
from flows.question import pose
from tasks.known_flags import Installed, ignored_here, must_ask, unknown_here
from tests import sweeping
from tests.agent_host import AgentHost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.sweep import Sweep
    from tests.sweeping import Ground

ROOT = Path(__file__).parents[1]
_MAIN = "from flows.cli import main; main()"


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("installed")) as made:
        yield made


def asked(arms: str = "base+tuned", **flags: int) -> Sweep:
    sweep = sweeping.sweep("flags", arms=arms)
    extra = {name.replace("_", "-"): value for name, value in flags.items()}
    engine = sweep.engine.model_copy(update={"flags": {**sweep.engine.flags, **extra}})
    return sweep.model_copy(update={"engine": engine})


def test_a_release_of_the_table_needs_no_question():
    flags = {"tp-size": 8, "cuda-graph-max-bs": 64}
    assert not must_ask(flags, "sglang", "0.5.9")
    assert not must_ask(flags, "sglang", "0.5.23")
    assert must_ask(flags, "sglang", "0.6.0")
    assert must_ask({"of-tomorrow": 1}, "sglang", "0.5.9")
    assert must_ask({"max-num-seqs": 1}, "vllm", "0.22.1")


def test_what_an_engine_lacks_is_said_with_what_it_has():
    old = Installed(engine="sglang", version="0.5.23")
    assert unknown_here(["cuda-graph-max-bs", "tp-size"], old) == {
        "cuda-graph-max-bs": "SGLang 0.5.23 has no --cuda-graph-max-bs"
    }
    options = ("tp-size", "cuda-graph-max-bs-decode", "cuda-graph-max-bs-prefill")
    new = Installed(engine="sglang", version="0.6.0", options=options)
    assert unknown_here(["cuda-graph-max-bs", "tp-size"], new) == {
        "cuda-graph-max-bs": (
            "SGLang 0.6.0 has no --cuda-graph-max-bs: did you mean cuda-graph-max-bs-decode or "
            "cuda-graph-max-bs-prefill?"
        )
    }
    unasked = Installed(engine="sglang", version="0.6.0")
    assert unknown_here(["anything"], unasked) == {}, "nobody knows: the engine will judge"


def test_variables_that_an_engine_does_not_read():
    env = {"SGLANG_ENABLE_SPEC_V2": "1", "NCCL_PROTO": "LL"}
    assert ignored_here(env, Installed(engine="sglang", version="0.5.9")) == {}
    assert ignored_here(env, Installed(engine="sglang", version="0.5.23")) == {
        "SGLANG_ENABLE_SPEC_V2": "SGLang 0.5.23 does not read SGLANG_ENABLE_SPEC_V2"
    }
    assert ignored_here(env, Installed(engine="vllm", version="0.33.0")) == {}


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentHost]:
    made = AgentHost(tmp_path)
    yield made
    made.clean_up()


# A small engine with the habits of both: a chatty import, sub-commands, hidden options.
_ENGINE = """
import argparse, sys

class Flexible(argparse.ArgumentParser):
    def parse_known_args(self, args=None, namespace=None):
        return super().parse_known_args(args, namespace)

print("INFO a line of the platform")
first = argparse.ArgumentParser()
first.add_argument("--config")
first.parse_known_args([])
parser = Flexible()
commands = parser.add_subparsers()
serve, bench = commands.add_parser("serve"), commands.add_parser("bench")
serve.add_argument("model")
serve.add_argument("--max-num-seqs", "--seqs", type=int)
serve.add_argument("--hidden", help=argparse.SUPPRESS)
serve.add_argument("--eager", action=argparse.BooleanOptionalAction)
bench.add_argument("--rounds")
parser.parse_args()
raise SystemExit("the model would be loaded now")
"""


def _package(folder: Path, name: str) -> str:
    """A Python that has a package of this name; its path."""
    site = folder / "site"
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text("")
    (site / name / "args.py").write_text("")
    (site / name / "main.py").write_text(_ENGINE)
    info = site / f"{name}-1.2.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_the_parser_itself_is_asked_and_the_answer_kept(agent: AgentHost, tmp_path: Path):
    python = _package(tmp_path, "tinyserve")
    request = {
        "python": python,
        "package": "tinyserve",
        "file": "args.py",
        "module": "tinyserve.main",
        "mark": "max-num-seqs",
        "words": ["serve", "/m"],
        "keep": str(agent.root / "options"),
    }
    first = agent.trial().job("options", "options", request)
    assert first["version"] == "1.2.3"
    assert first["options"] == [
        ["help"],
        ["help"],
        ["max-num-seqs", "seqs"],
        ["hidden"],
        ["eager", "no-eager"],
    ]
    assert (first["kept"], first["error"]) == (False, None)
    (tmp_path / "site/tinyserve/main.py").write_text("raise SystemExit('not again')")
    again = agent.trial().job("options", "options", request)
    assert (again["kept"], again["options"]) == (True, first["options"])

    os.utime(tmp_path / "site/tinyserve/args.py", (1, 1))  # another parser, the same version
    changed = agent.trial().job("options", "options", request)
    assert (changed["options"], changed["error"]) == (None, "not again")

    absent = agent.trial().job("options", "options", {**request, "package": "nothere"})
    assert (absent["version"], absent["error"]) == (None, "not installed")


def test_an_unknown_flag_is_refused_before_anything_is_launched(ground: Ground):
    record = ground.trial(asked("tuned", no_flag_of_any_release=1)).record
    assert record.failure is not None
    assert (record.failure.stage, record.failure.failure_class) == ("survey", "bad_arguments")
    assert record.failure.message == "SGLang 0.5.9 has no --no-flag-of-any-release"
    assert "launch" not in [stage.name for stage in record.stages]
    assert list((ground.root / "options").glob("sglang-0.5.9-*.json"))


def test_a_plan_is_held_against_the_engine_that_is_there(ground: Ground):
    said: list[str] = []
    file = str(ground.host_file())
    hold_against(pose(asked(), file), "flags.yaml", said.append)
    assert said[0].startswith("box: SGLang 0.5.9 in venv/bin/python: its own parser has ")
    with pytest.raises(ConfigError) as caught:
        hold_against(pose(asked(no_flag=1), file), "flags.yaml", said.append)
    (problem,) = caught.value.problems
    assert str(problem) == "flags.yaml: engine.flags.no-flag: SGLang 0.5.9 has no --no-flag"
    assert ground.empty(), "nothing was started"
    assert not list((ground.root / "trials").glob("plan-*"))


def test_plan_with_a_host_says_so_on_the_command_line(ground: Ground, tmp_path: Path):
    sweep = ground.sweep_file(asked(no_flag=1))
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, "plan", str(sweep), "--host", str(ground.host_file())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "EAGLE3_HOME": str(tmp_path)},
    )
    assert done.returncode == 2, done.stderr
    assert "engine.flags.no-flag: SGLang 0.5.9 has no --no-flag" in done.stderr
    assert "its own parser has" in done.stdout
