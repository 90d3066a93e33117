"""`eagle3-sweep doctor`: is every host fit for the night; looks, and changes nothing."""

from __future__ import annotations

import posixpath
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from configs.find import SHIPPED
from configs.host import AddressFile
from configs.nodes import all_nodes
from configs.problems import ConfigError
from configs.read import read_host, read_sweep
from infra.errors import WorldError
from infra.places import state_folder
from tasks.host_checks import Check, judge_host, worst
from tasks.prepare import model_paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from configs.host import Host
    from configs.sweep import Sweep
    from infra.host_agent import HostAgent

_PATIENCE_S = 20.0
_FACTS_S = 60.0
_FORGET_S = 20.0


class Looked(NamedTuple):
    """What a look at one host showed."""

    host: str
    checks: tuple[Check, ...]
    unreachable: str | None = None
    """Why it could not be reached or would not have us."""

    @property
    def level(self) -> str:
        """The worst of it."""
        return worst(self.checks)

    def lines(self) -> list[str]:
        """For people: one line a check."""
        return [f"{self.host}: {c.level:7} {c.name}: {c.text}" for c in self.checks]


def doctor(
    hosts: Annotated[
        list[str] | None, typer.Argument(help="names in configs/hosts; all, if none is given")
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(help="also look for this sweep's models, on its own hosts")
    ] = None,
) -> None:
    """Look over hosts: reached, GPUs, engine, disk, models; exit code 1 if one is not fit."""
    asked = read_sweep(sweep) if sweep else None
    names = hosts or (list(all_nodes(asked.hosts)) if asked else known_hosts())
    bad = False
    for name in names:
        looked = look_over(name, asked)
        bad = bad or looked.level == "fail"
        for line in looked.lines():
            typer.echo(line)
    raise typer.Exit(1 if bad else 0)


def known_hosts() -> list[str]:
    """Every host that has a file here; one whose address file is missing is not up, and left out."""
    rooms = (Path("configs") / "hosts", SHIPPED / "hosts")
    names = sorted(
        {path.name.removesuffix(".yaml") for room in rooms for path in room.glob("*.yaml")}
    )
    return [name for name in names if _may_be_up(name)]


def _may_be_up(name: str) -> bool:
    try:
        host = read_host(name)
    except ConfigError:
        return True  # the look will say what is wrong with it
    return not (
        isinstance(host.connect, AddressFile) and not (state_folder() / host.connect.path).exists()
    )


def look_over(name: str, sweep: Sweep | None = None) -> Looked:
    """Looks at one host; whatever is wrong is in what it returns.

    A host that a sweep holds is left alone: a look starts programs there.
    """
    try:
        host = read_host(name)
    except ConfigError as error:
        return Looked(name, (Check("file", "fail", str(error)),))
    from infra.connect import connect

    try:
        agent = connect(host, patience_s=_PATIENCE_S)
        try:
            return Looked(name, _look(agent, host, sweep))
        finally:
            agent.close()
    except WorldError as error:
        return Looked(name, (Check("contact", "fail", str(error)),), unreachable=str(error))


def _look(agent: HostAgent, host: Host, sweep: Sweep | None) -> tuple[Check, ...]:
    hello = agent.hello
    reached = Check("contact", "ok", f"{hello.user}, Python {hello.python}")
    held = agent.call("held", root=agent.root)
    if held["held"]:
        who = f"in use by {held['holder']} ({held['note']}): not looked at further"
        return (reached, Check("claim", "ok", who))
    models = model_paths(sweep) if sweep else []
    folders = {"folder": agent.root} | {path: agent.from_cwd(path) for path in models}
    return (reached, *judge_host(host, _facts(agent, host, folders), folders))


def _facts(agent: HostAgent, host: Host, folders: Mapping[str, str]) -> dict[str, Any]:
    """The agent's facts, once for each Python that an engine may run in."""
    folder = posixpath.join(agent.root, "trials", f"doctor-{uuid.uuid4().hex[:12]}")
    pythons = _pythons(host)
    agent.make_folder(folder)
    try:
        found = [
            agent.job(
                folder,
                f"facts-{number}",
                "facts",
                {"python": agent.path(python), "paths": list(folders.values()), "ports": []},
                timeout_s=_FACTS_S,
            )
            for number, python in enumerate(pythons)
        ]
    finally:
        agent.shell.run(["rm", "-r", folder], timeout_s=_FORGET_S)
    engines = {python: each["engine_python"] for python, each in zip(pythons, found, strict=True)}
    return {**found[0], "engine_pythons": engines}


def _pythons(host: Host) -> Sequence[str]:
    return list(dict.fromkeys([host.python, *host.pythons.values()]))
