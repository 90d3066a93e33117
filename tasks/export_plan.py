"""What an exported setting starts: words, environment, secrets by name, patches; purely."""

from __future__ import annotations

import posixpath
import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from configs import vllm
from configs.host import Ssh
from configs.layers import engine_of, model_paths
from configs.problems import ConfigError, Problem
from tasks.launch import UNSET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.host import Host
    from configs.releases import EngineKind
    from configs.sweep import Sweep
    from tasks.export_choice import Chosen
    from tasks.record import PatchOutcome, TrialRecord

# As a masked value stands in a record (infra/masking.py).
_STARS = "***"
_PORTS: dict[EngineKind, int] = {"sglang": 30000, "vllm": 8000}
_HEADER = re.compile(r"--- a/(?P<module>\S+)\n")


class Variable(NamedTuple):
    """A word that is taken from the environment when the engine is started."""

    name: str


class SourcePatch(NamedTuple):
    """A change of the engine's source that the setting needs."""

    file: str
    """Name of the exported diff."""
    outcome: PatchOutcome
    package: str
    """Folder of the engine's package on the host: the diff's paths start there."""


class Deployment(NamedTuple):
    """One setting, as it is started on a host."""

    label: str
    slug: str
    engine: EngineKind
    version: str | None
    """Of the engine, as the trial found it."""
    python: str
    """Absolute path on the host."""
    words: tuple[str | Variable, ...]
    """Arguments behind the Python: ``-m``, the module, the flags."""
    env: dict[str, str]
    secrets: dict[str, str]
    """Variable of the engine -> variable that holds the value where it is started."""
    unset: tuple[str, ...]
    cwd: str
    """As the host file says; ``~`` is the home of the user."""
    port: int
    user: str | None
    """Who the sweep was on the host; None: not known."""
    folders: tuple[str, ...]
    """Of target and drafter on the host."""
    patches: tuple[SourcePatch, ...]

    @property
    def asked(self) -> tuple[str, ...]:
        """Variables that must be set where it is started."""
        needed = [*self.secrets.values(), *(w.name for w in self.words if isinstance(w, Variable))]
        return tuple(name for name in dict.fromkeys(needed) if name != "PORT")


def deployment(sweep: Sweep, host: Host, chosen: Chosen) -> Deployment:
    """What the chosen setting's trial started, with its port and its secrets as variables.

    vLLM's development mode, which a sweep needs to empty its cache, is left out: it opens more
    of the server than anybody should reach.

    Raises:
        ConfigError: A value was masked that is not known as a secret; the engine ran on several
            nodes, of which a script starts one.
    """
    record, engine = chosen.record, engine_of(sweep, chosen.arm)
    _one_node(record)
    secrets = {name: name for name in (*host.env_from, *engine.env_from)}
    if host.api_key_from and engine.kind == "vllm":
        secrets["VLLM_API_KEY"] = host.api_key_from
    words = tuple(_words(record, host.api_key_from))
    left_out = {*secrets, *(vllm.ALWAYS if engine.kind == "vllm" else ())}
    env = {name: value for name, value in record.environment.items() if name not in left_out}
    _nothing_masked(words, env)
    folders = [engine.model]
    folders += [f for at, f in model_paths(sweep).items() if at.startswith(f"arms.{chosen.arm}.")]
    return Deployment(
        label=chosen.label,
        slug=chosen.slug,
        engine=engine.kind,
        version=record.versions.get(engine.kind),
        python=record.command[0],
        words=words,
        env=env,
        secrets=secrets,
        unset=tuple(name for name in UNSET if name not in {**env, **secrets}),
        cwd=host.cwd,
        port=host.port or _PORTS[engine.kind],
        user=host.connect.user if isinstance(host.connect, Ssh) else None,
        folders=tuple(folders),
        patches=tuple(_patches(record)),
    )


def _one_node(record: TrialRecord) -> None:
    count = next((b for a, b in pairwise(record.command) if a == "--nnodes"), "1")
    if count != "1":
        said = (
            f"{record.trial} ran on {count} nodes together, and a script starts one: take each "
            "node's command from the report (How to reproduce)"
        )
        raise ConfigError([Problem("export", "--arm", said)])


def _words(record: TrialRecord, key: str | None) -> Iterator[str | Variable]:
    """The recorded arguments; the port and the API key are not those of the trial."""
    before = ""
    for word in record.command[1:]:
        if before == "--port":
            yield Variable("PORT")
        elif before == "--api-key" and key:
            yield Variable(key)
        else:
            yield word
        before = word


def _nothing_masked(words: tuple[str | Variable, ...], env: dict[str, str]) -> None:
    wrong = [name for name, value in env.items() if _STARS in value]
    wrong += [word for word in words if isinstance(word, str) and _STARS in word]
    if wrong:
        said = "holds a secret that is not known by name: give it in env_from or api_key_from"
        raise ConfigError([Problem("export", name, said) for name in wrong])


def _patches(record: TrialRecord) -> Iterator[SourcePatch]:
    """The patches that changed something; one that found its methods there asks for nothing."""
    for outcome in record.patches:
        header = _HEADER.match(outcome.diff)
        if outcome.action == "insert" and header is not None:
            package = outcome.path.removesuffix(f"/{header['module']}")
            yield SourcePatch(f"{outcome.name}.diff", outcome, package)


def from_home(path: str) -> str | None:
    """What follows ``~/`` in a path; empty for the home itself, None for another path."""
    if path == "~":
        return ""
    return path.removeprefix("~/") if path.startswith("~/") else None


def is_absolute(path: str) -> bool:
    """Whether a path of the host needs no working folder."""
    return posixpath.isabs(path)
