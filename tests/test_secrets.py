"""Secrets reach the engine and nothing else: not a file, not a log, not the screen."""

from __future__ import annotations

import gzip
import signal
from typing import TYPE_CHECKING

import pytest

from infra.masking import Mask
from tasks.prepare import facts_to_keep
from tests import sweeping

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


def test_so_does_running_it_again(ground: Ground) -> None:
    cut_off(ground, "again")
    path = ground.place / "configs" / "sweeps" / "again.yaml"
    with ground.command("run", str(path), HF_TOKEN=_TOKEN, ENGINE_KEY=_KEY) as command:
        assert command.ended() == 0, command.text
    assert holding(ground.place, _KEY) == []
    assert ground.empty()
