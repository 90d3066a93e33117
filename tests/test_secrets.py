"""Secrets reach the engine and nothing else: not a file, not a log, not the screen."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from flows import services
from infra.masking import Mask
from infra.services import QUIET, ensure
from tasks.prepare import facts_to_keep
from tests import rehearsing, sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.sweeping import Ground

_TOKEN = "canary-token-5b1d7c"
_KEY = "canary-key-90ffe2"


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("secrets")) as made:
        yield made


def holding(folder: Path, secret: str) -> list[str]:
    """Files under a folder that hold a secret, packed ones too."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 50_000_000:
            data = path.read_bytes()
            if path.suffix == ".gz":
                data = gzip.decompress(data)
            if secret.encode() in data:
                found.append(str(path.relative_to(folder)))
    return found


@pytest.fixture(scope="module")
def swept(ground: Ground) -> str:
    """A sweep with two secrets; what it said."""
    # Tuned without its hooks fails: the failure is evidence of its own, with log lines in it.
    asked = sweeping.sweep("secret", arms="base+tuned", patches="", env_from="HF_TOKEN")
    env = {"HF_TOKEN": _TOKEN, "ENGINE_KEY": _KEY}
    path = ground.sweep_file(asked)
    ground.host_file(api_key_from="ENGINE_KEY")
    with ground.command("run", str(path), **env) as command:
        assert command.ended() == 0, command.text
        return command.text


@pytest.mark.parametrize("secret", [_TOKEN, _KEY])
def test_a_secret_stands_nowhere_afterwards(ground: Ground, swept: str, secret: str) -> None:
    assert secret not in swept
    assert holding(ground.place, secret) == []


# As a deployment runs it, with the whole sweep among the flow's parameters.
_FLOW = """
import sys
from configs.read import read_sweep
from flows.run_sweep import eagle3_sweep
eagle3_sweep(definition=read_sweep(sys.argv[1]), host=sys.argv[2])
"""


@pytest.fixture(scope="module")
def recorded(ground: Ground) -> str:
    """The same through Prefect and into MLflow, the databases of both in our folder."""
    asked = sweeping.sweep("recorded", arms="base+tuned", patches="", env_from="HF_TOKEN")
    host, port = ground.host_file(api_key_from="ENGINE_KEY"), rehearsing.free_port()
    api = f"http://127.0.0.1:{port}/api"
    env = {
        **QUIET,
        "EAGLE3_HOME": str(ground.place),
        "PREFECT_HOME": str(ground.place / "prefect"),
        "PREFECT_API_URL": api,
        "MLFLOW_TRACKING_URI": f"sqlite:///{ground.place}/mlflow.db",
        "HF_TOKEN": _TOKEN,
        "ENGINE_KEY": _KEY,
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("EAGLE3_HOME", str(ground.place))
        try:
            ensure(services._prefect(env, port, api), lambda _text: None)
            done = subprocess.run(
                [sys.executable, "-c", _FLOW, str(ground.sweep_file(asked)), str(host)],
                check=False,
                cwd=ground.place,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=150,
            )
        finally:
            services.down(lambda _text: None)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_what_is_searched_holds_the_databases_of_mlflow_and_prefect(
    ground: Ground, recorded: str
) -> None:
    assert "recorded" in recorded
    names = holding(ground.place, "missing_interface")
    assert "mlflow.db" in names
    assert [name for name in names if name.startswith("mlruns/")]
    assert [name for name in names if name.startswith("prefect/prefect.db")]


@pytest.mark.parametrize("secret", [_TOKEN, _KEY])
def test_a_secret_stands_in_no_database_and_no_artifact(
    ground: Ground, recorded: str, secret: str
) -> None:
    assert secret not in recorded
    assert holding(ground.place, secret) == []


def test_a_plan_names_secrets_and_shows_none(ground: Ground) -> None:
    path = ground.sweep_file(sweeping.sweep("planned", env_from="HF_TOKEN"))
    ground.host_file(api_key_from="ENGINE_KEY")
    with ground.command("plan", str(path), HF_TOKEN=_TOKEN, ENGINE_KEY=_KEY) as command:
        assert command.ended() == 0, command.text
        assert "HF_TOKEN='***'" in command.text
        assert "--api-key '***'" in command.text
        assert _TOKEN not in command.text
        assert _KEY not in command.text


def test_keys_in_command_lines_of_others_are_not_kept() -> None:
    raw = {
        "processes": [
            {"pid": 7, "args": "python -m x --api-key abc --tokenizer-path /m --hf-token=hf_1 -q"},
            {"pid": 8, "args": f"sh -c {_TOKEN}"},
        ],
        "host": {"boot_id": "key token"},
        "nothing": None,
    }
    kept = facts_to_keep(raw, Mask([_TOKEN]))
    assert kept == {
        "processes": [
            {"pid": 7, "args": "python -m x --api-key *** --tokenizer-path /m --hf-token=*** -q"},
            {"pid": 8, "args": "sh -c ***"},
        ],
        "host": {"boot_id": "key token"},
        "nothing": None,
    }


def cut_off(ground: Ground, name: str) -> None:
    """A sweep with two secrets, killed under load."""
    asked = sweeping.sweep(name, arms="base", patches="", env_from="HF_TOKEN")
    path = ground.sweep_file(asked)
    ground.host_file(api_key_from="ENGINE_KEY", lease_s=60)
    with ground.command("run", str(path), HF_TOKEN=_TOKEN, ENGINE_KEY=_KEY) as command:
        command.reaches(lambda: sweeping.probes(ground.attempt(name)))
        command.signal(signal.SIGKILL)
        command.ended()
    assert holding(ground.place, _KEY)


def test_clean_takes_the_secrets_of_a_killed_sweep_away(ground: Ground) -> None:
    cut_off(ground, "cut")
    with ground.command("clean", "cut") as clean:
        assert clean.ended() == 0, clean.text
    assert holding(ground.place, _KEY) == []


@pytest.mark.long
def test_so_does_running_it_again(ground: Ground) -> None:
    cut_off(ground, "again")
    path = ground.place / "configs" / "sweeps" / "again.yaml"
    with ground.command("run", str(path), HF_TOKEN=_TOKEN, ENGINE_KEY=_KEY) as command:
        assert command.ended() == 0, command.text
    assert holding(ground.place, _KEY) == []
    assert ground.empty()
