"""Whatever a sweep's file holds reaches the engine's program word by word, through real SSH."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from configs.host import Host
from configs.names import truth_of
from configs.plan import make_plan
from configs.read import parse_sweep, to_yaml
from infra.connect import connect
from infra.masking import Mask
from infra.store import TrialFolder
from tasks.launch import Secrets, launch
from tasks.venue import Site
from tests.sweeps import sweep as plain_sweep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from configs.sweep import Sweep
    from infra.host_agent import HostAgent

# Stands where the engine's Python would: tells what it was started with, and ends.
_PROGRAM = """#!{python}
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]), flush=True)
"""
_ODD_NAME = 'it\'s a $(touch pwned) "place"\n漢 -n'
_NASTY = ["-", "--", "-n", "--host=0.0.0.0", "$(touch pwned)", "`touch pwned`", "a b", "it's", '"']
_NASTY += ["\\", "a\nb", "\n", "; touch pwned", "&& touch pwned", "| cat", "> pwned", "*", "~", "#"]
_NASTY += ["!!", "${HOME}", "$HOME", "%s", "é漢🙂", "\r", "\t", "\x1b[31m", "'\"'\"'", " "]
_WORD = st.sampled_from(_NASTY) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]),
    min_size=1,
    max_size=30,
)
# A folder with a space at its end, or "~", is refused as a slip: neither comes to a shell.
_FOLDER = _WORD.map(lambda word: f"/m{word}m")
# A bare "yes" is refused as a truth value in disguise, and a number is a number.
_VALUE = _WORD.filter(lambda word: truth_of(word.strip()) is None and not word.strip().isdecimal())


class Asked(NamedTuple):
    """Values of a sweep's file, and of the environment."""

    model: str
    flags: list[str]
    several: list[str]
    env: list[str]
    secret: str


_ASKED = st.builds(
    Asked,
    model=_FOLDER,
    flags=st.lists(_VALUE, min_size=1, max_size=5),
    # argparse would take an element with a dash for the next flag: refused when the file is read.
    several=st.lists(_VALUE.filter(lambda word: not word.startswith("-")), min_size=1, max_size=3),
    env=st.lists(_WORD, min_size=1, max_size=5),
    secret=_WORD,
)


@pytest.fixture(scope="module", params=["rehearsal", "openssh"])
def agent(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostAgent]:
    """A hand on a host on which every path is odd too."""
    place = tmp_path_factory.mktemp("hostile") / _ODD_NAME
    place.mkdir()
    program = place / "pyth'on"
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    server = request.getfixturevalue(request.param)
    host = Host(
        name="odd",
        connect=server.spec() if request.param == "openssh" else server.host.connect,
        python=str(program),
        gpus=8,
        host_class="odd",
        folder=str(place / "our $folder"),
        cwd=str(place),
    )
    made = connect(host, patience_s=5)
    yield made
    made.close()


def file_of(asked: Asked) -> Sweep:
    """The sweep as it is read from its file."""
    flags: dict[str, Any] = {f"odd-{n}": value for n, value in enumerate(asked.flags)}
    engine = plain_sweep().engine.model_copy(
        update={
            "model": asked.model,
            "flags": {**plain_sweep().engine.flags, **flags, "odd-list": tuple(asked.several)},
            "env": {f"ODD_{n}": value for n, value in enumerate(asked.env)},
        }
    )
    written = plain_sweep().model_copy(update={"engine": engine})
    return parse_sweep(to_yaml(written), "odd.yaml")


def told(agent: HostAgent, asked: Asked, keep: Path) -> Any:
    """What the program was started with."""
    sweep = file_of(asked)
    marker = f"odd.{datetime.now(UTC):%H%M%S%f}"
    trial = next(trial for trial in make_plan(sweep).trials if trial.arm == "base")
    site = Site(agent, agent.host, sweep, trial, "odd", marker, TrialFolder(keep), Mask())
    agent.make_folder(site.folder)
    launch(site, Secrets({"HF_TOKEN": asked.secret}, asked.secret))
    seen, phase = None, ""
    while phase != "exited":
        poll = agent.wait(site.folder, None, seen=seen)
        seen, phase = poll.seen, (poll.state or {}).get("phase", "")
    return json.loads(agent.get(f"{site.folder}/server.log"))


@settings(
    max_examples=8,
    phases=[Phase.explicit, Phase.generate],  # each example starts processes: no shrinking
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(asked=_ASKED)
def test_every_value_of_a_file_is_one_argument_or_one_variable(agent, tmp_path, asked):
    argv, env, cwd = told(agent, asked, tmp_path)
    assert one_after(argv, "--model-path") == asked.model
    for number, value in enumerate(asked.flags):
        assert one_after(argv, f"--odd-{number}") == value
    at = argv.index("--odd-list")
    assert argv[at + 1 : at + 1 + len(asked.several)] == asked.several
    assert one_after(argv, "--api-key") == asked.secret
    assert [env[f"ODD_{number}"] for number in range(len(asked.env))] == asked.env
    assert env["HF_TOKEN"] == asked.secret
    assert cwd == agent.host.cwd
    assert not list(tmp_path.parent.parent.rglob("pwned"))


def one_after(argv: list[str], flag: str) -> str:
    """A flag's value: the next argument, or the same one where it begins with a dash."""
    (found,) = (
        argv[at + 1] if word == flag else word.partition("=")[2]
        for at, word in enumerate(argv)
        if word == flag or word.startswith(f"{flag}=")
    )
    return found
