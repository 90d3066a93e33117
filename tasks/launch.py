"""The engine's command line and environment, built purely; and the stage that starts it."""

from __future__ import annotations

import os
import posixpath
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from configs import vllm
from configs.flags import is_switch
from configs.layers import engine_of, engines_by_place
from configs.nodes import joint_env, joint_flags
from configs.plan import arm_env
from configs.problems import ConfigError, Problem
from configs.rules import arm_flags
from configs.sweep import Sglang
from configs.values import Value
from configs.vllm import Vllm
from infra.errors import AgentRefusal
from tasks.ports import check_ports, pick_port
from tasks.venue import failed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from configs.host import Host
    from configs.names import FlagValue
    from configs.nodes import Joint
    from configs.releases import EngineKind
    from configs.sweep import Engine, Sweep
    from tasks.venue import Site

# So that a marker in the environment survives the engine's retitling of its processes
# (setproctitle zeroes the environment otherwise; measured with 1.3.8).
_ALWAYS = {"SPT_NOENV": "1", "PYTHONUNBUFFERED": "1"}
# What would reach the engine from the SSH session and change its numbers from host to host.
UNSET = ("CUDA_VISIBLE_DEVICES",)


class Handle(Value):
    """A running engine, by identity; enough to find it again from any process."""

    folder: str
    port: int
    pid: int
    pgid: int
    sid: int
    start_ticks: int
    boot_id: str
    headers_path: str | None = None
    """File on the host with the headers that the engine's API key needs; None without a key."""


class Secrets(NamedTuple):
    """What is taken from the controller's environment: values never written to any file here."""

    env: dict[str, str]
    api_key: str | None

    @property
    def values(self) -> list[str]:
        """All values that must not be shown."""
        return [*self.env.values(), *([self.api_key] if self.api_key else [])]


def read_secrets(sweep: Sweep, host: Host, environ: Mapping[str, str] = os.environ) -> Secrets:
    """The values of everything named in env_from and api_key_from.

    Raises:
        ConfigError: A named variable is not set; names each.
    """
    hosts, sweeps = f"configs/hosts/{host.name}.yaml", f"configs/sweeps/{sweep.name}.yaml"
    engines = engines_by_place(sweep)
    told = [name for engine in engines.values() for name in engine.env_from]
    names = dict.fromkeys([*host.env_from, *told])
    wanted = [
        *((hosts, "env_from", name) for name in host.env_from),
        *((sweeps, f"{at}.env_from", name) for at, of in engines.items() for name in of.env_from),
        *([(hosts, "api_key_from", host.api_key_from)] if host.api_key_from else []),
    ]
    missing = [
        Problem(file, where, f"{name} is not set in this environment: export it, or take it out")
        for file, where, name in wanted
        if not environ.get(name)
    ]
    if missing:
        raise ConfigError(missing)
    key = environ[host.api_key_from] if host.api_key_from else None
    return Secrets({name: environ[name] for name in names}, key)


def flag_words(flags: Mapping[str, FlagValue], engine: EngineKind = "sglang") -> list[str]:
    """Flags as argv elements, in their order; ``false`` turns a switch off, else it is left out."""
    words: list[str] = []
    for flag, value in flags.items():
        name = f"--{flag}"
        if value is True:
            words.append(name)
        elif value is False:
            words += [f"--no-{flag}"] if is_switch(flag, engine) else []
        elif isinstance(value, tuple):
            words += [name, *(str(element) for element in value)]
        elif str(value).startswith("-") and isinstance(value, str):
            words.append(f"{name}={value}")  # argparse would take it for another flag
        else:
            words += [name, str(value)]
    return words


def engine_argv(
    sweep: Sweep,
    host: Host,
    arm: str,
    levels: dict[str, str],
    *,
    port: int | str,
    python: str | None = None,
    api_key: str | None = None,
    joint: Joint | None = None,
) -> list[str]:
    """The command of one arm under these levels, each argument an element of its own.

    Args:
        sweep: The question.
        host: Where it runs.
        arm: Of the sweep.
        levels: Factor -> level.
        port: That it serves on.
        python: The engine's, as the host knows it.
        api_key: That it asks for.
        joint: Which node of several it is; None: it runs on one host.
    """
    engine = engine_of(sweep, arm)
    door: dict[str, FlagValue] = {"host": host.listen, "port": port}
    if joint is not None and not joint.leads and engine.kind == "vllm":
        door = {}  # without an API server there is no door
    ours = {**door, **joint_flags(engine.kind, joint)}
    flags = arm_flags(sweep, arm, levels)
    command = [python or host.python_of(engine.kind), "-m", module_of(engine.kind)]
    match engine:
        case Sglang():
            secret: dict[str, FlagValue] = {} if api_key is None else {"api-key": api_key}
            target: dict[str, FlagValue] = {"model-path": engine.model}
            return [*command, *flag_words({**target, **ours, **flags, **secret}, "sglang")]
        case Vllm():
            # Its key goes through the environment, where no list of processes shows it.
            return [*command, "serve", engine.model, *flag_words({**ours, **flags}, "vllm")]
        case _:
            assert_never(engine)


def module_of(engine: EngineKind) -> str:
    """What is run with ``python -m``; of vLLM it is what the command ``vllm`` runs."""
    match engine:
        case "sglang":
            return "sglang.launch_server"
        case "vllm":
            return "vllm.entrypoints.cli.main"
        case _:
            assert_never(engine)


def shell_line(environment: Mapping[str, str], command: Sequence[str]) -> str:
    """A command with what is added to its environment, to be typed into a shell."""
    words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join([*words, shlex.join(command)])


def engine_env(
    sweep: Sweep,
    host: Host,
    arm: str,
    levels: Mapping[str, str],
    joint: Joint | None = None,
) -> dict[str, str]:
    """What is added to the engine's environment, secrets apart."""
    engine = engine_of(sweep, arm)
    meet = joint_env(engine.kind, host, joint)
    return {**_always(engine), **meet, **host.env, **arm_env(sweep, arm, levels)}


def _always(engine: Engine) -> dict[str, str]:
    match engine:
        case Sglang():
            return _ALWAYS
        case Vllm():
            return {**_ALWAYS, **vllm.ALWAYS}
        case _:
            assert_never(engine)


def secret_env(engine: Engine, secrets: Secrets) -> dict[str, str]:
    """What is added to the engine's environment and must not be shown."""
    match engine:
        case Sglang():
            return secrets.env
        case Vllm():
            key = {"VLLM_API_KEY": secrets.api_key} if secrets.api_key else {}
            return {**secrets.env, **key}
        case _:
            assert_never(engine)


def launch(
    site: Site, secrets: Secrets, *, port: int | None = None, joint: Joint | None = None
) -> Handle:
    """Starts the engine under its supervisor; a launch asked for twice is one launch.

    Args:
        site: Where.
        secrets: Of the host and the engine.
        port: That it serves on; None: one is picked.
        joint: Which node of several this is.
    """
    sweep, host, trial, agent = site.sweep, site.host, site.trial, site.agent
    port = pick_port(site) if port is None else port
    check_ports(site, arm_flags(sweep, trial.arm, trial.levels))
    argv = engine_argv(
        sweep,
        host,
        trial.arm,
        trial.levels,
        port=port,
        python=site.python,
        api_key=secrets.api_key,
        joint=joint,
    )
    hidden = secret_env(site.engine, secrets)
    env = {**engine_env(sweep, host, trial.arm, trial.levels, joint), **hidden}
    agent.put_json(
        {
            "trial": site.marker,
            "argv": argv,
            "env": env,
            "unset": [name for name in UNSET if name not in env],
            "cwd": agent.path(host.cwd),
            "lease_s": host.lease_s,
            "grace_s": sweep.patience.stop_s,
            "port": port,
            "gpu_wait_s": sweep.patience.gpu_free_s,
            "free_below_mib": host.free_below_mib,
        },
        posixpath.join(site.folder, "launch.json"),
    )
    try:
        state = agent.call("supervise", dir=site.folder, root=agent.root)["state"]
    except AgentRefusal as refusal:
        if refusal.error != "already_supervised":
            raise
        state = refusal.answer["state"]
        if state is None:
            raise failed(
                "launch", "unknown_exception", "a supervisor is there that wrote no state"
            ) from refusal
    handle = handle_of(site.folder, port, state)
    return handle.model_copy(update={"headers_path": _headers(site, secrets)})


def _headers(site: Site, secrets: Secrets) -> str | None:
    """The API key's header as a file of ours (0600): an argument would show it to ``ps``."""
    if secrets.api_key is None:
        return None
    path = posixpath.join(site.folder, "headers.json")
    site.agent.put_json({"Authorization": f"Bearer {secrets.api_key}"}, path)
    return path


def handle_of(folder: str, port: int, state: Any) -> Handle:
    """The handle in a state file."""
    engine = state["engine"] or {}
    if not engine:
        raise failed("launch", "engine_dead", state.get("message") or "the engine did not start")
    return Handle(
        folder=folder,
        port=port,
        pid=engine["pid"],
        pgid=engine["pgid"],
        sid=engine["sid"],
        start_ticks=engine["start_ticks"],
        boot_id=state["boot_id"],
    )
