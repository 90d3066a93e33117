"""The sealed room: no test sees this machine's settings, and none leaves anything behind.

Imports neither prefect nor mlflow: they cost seconds, and most tests need neither.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import hypothesis
import pytest

from configs.host import Fingerprint, Host, Ssh
from infra.rehearsal import hosting
from tests import rehearsing
from tests.openssh import OpenSsh, why_no_sshd

if TYPE_CHECKING:
    from collections.abc import Iterator

_OURS = ("EAGLE3_", "MLFLOW_", "PREFECT_")
_OTHERS = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GIT_CONFIG_GLOBAL")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy")
# Read when prefect and mlflow are first imported, so they are set before anything is.
_QUIET = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "no_proxy": "127.0.0.1,localhost",
}

# The same examples every time, so that a change is judged by what it changes; new ones are drawn
# with `pytest --hypothesis-profile=explore`, and by `make fuzz`.
hypothesis.settings.register_profile("eagle3", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile("eagle3")

_room = pytest.StashKey[tuple[Path, dict[str, str]]]()


def pytest_configure(config: pytest.Config) -> None:
    """Seals the environment before any test module is imported."""
    before = dict(os.environ)
    folder = Path(tempfile.mkdtemp(prefix="eagle3-room-"))
    config.stash[_room] = (folder, before)
    for name in before:
        if name.startswith(_OURS) or name in _OTHERS or name.lower() in _PROXIES:
            del os.environ[name]
    home = folder / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    # Package clients keep their caches and their index; nothing else of the home is seen.
    for name, place in {"XDG_CACHE_HOME": ".cache", "XDG_CONFIG_HOME": ".config"}.items():
        os.environ.setdefault(name, str(Path.home() / place))
    os.environ.update(_QUIET, HOME=str(home), PREFECT_HOME=str(folder / "prefect"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Gives the environment back."""
    folder, before = config.stash[_room]
    os.environ.clear()
    os.environ.update(before)
    shutil.rmtree(folder, ignore_errors=True)


class Rehearsal(NamedTuple):
    """The pretend GPU host of this test session."""

    ready: hosting.Host
    host: Host


@pytest.fixture(scope="session")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """A pretend GPU host that listens; shared, so a test leaves it as it found it."""
    folder = rehearsing.build(tmp_path_factory.mktemp("rehearsal"))
    with hosting.serving(folder) as ready:
        yield Rehearsal(ready, host_of(ready))


def host_of(ready: hosting.Host, port: int | None = None) -> Host:
    """The host file of a pretend host, its key pinned; another port leads through a relay."""
    return Host(
        name="rehearsal",
        connect=Ssh(
            host=ready.host,
            port=port or ready.port,
            user=ready.user,
            key=ready.key,
            host_key=Fingerprint(sha256=ready.fingerprint),
        ),
        python=f"{ready.home}/venv/bin/python",
        gpus=8,
        host_class="rehearsal",
        rehearsal=True,
    )


@pytest.fixture(scope="session")
def openssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSsh]:
    """A real sshd on loopback."""
    reason = why_no_sshd()
    if reason is not None:
        pytest.skip(reason)
    with OpenSsh(tmp_path_factory.mktemp("sshd")) as server:
        yield server
