"""`eagle3-sweep inspect`: a drafter held against target and engine before any sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from configs.problems import ConfigError, Problem
from configs.read import read_host
from configs.version import parse_version
from infra.errors import AgentRefusal
from infra.local_files import LocalFiles
from tasks.drafter_verdict import EngineFacts, TargetFacts
from tasks.inspection import (
    EXIT_CODES,
    inspect_folder,
    inspection_text,
    target_facts,
)

if TYPE_CHECKING:
    from infra.host_agent import HostAgent
    from tasks.model_files import Files

_ALGORITHMS = ("EAGLE3", "EAGLE", "NEXTN", "STANDALONE")


class _Asked(NamedTuple):
    """One question, as it was typed."""

    path: str
    target: str | None
    version: str | None
    algorithm: str
    context_length: int | None


def inspect(
    path: Annotated[str, typer.Argument(help="a drafter's folder, here or on --host")],
    *,
    host: Annotated[str | None, typer.Option(help="the folders are on this host")] = None,
    target: Annotated[str | None, typer.Option(help="the target's folder")] = None,
    version: Annotated[
        str | None, typer.Option(help="SGLang release; the one on --host, else the newest known")
    ] = None,
    algorithm: Annotated[str, typer.Option(help="how it will be used")] = "EAGLE3",
    context_length: Annotated[
        int | None, typer.Option(min=1, help="tokens that the server is started with")
    ] = None,
) -> None:
    """Hold a drafter against a target; exit code 0 ok, 1 findings, 2 it would be refused."""
    asked = _Asked(path, target, version, algorithm.upper(), context_length)
    _check(asked)
    if host is None:
        result = _judge(LocalFiles(), asked, asked.path, asked.target, asked.version)
    else:
        from infra.connect import connect

        agent = connect(read_host(host))
        try:
            there = agent.from_cwd(path), agent.from_cwd(target) if target else None
            result = _judge(agent, asked, *there, asked.version or _version_on(agent))
        finally:
            agent.close()
    raise typer.Exit(EXIT_CODES[result])


def _check(asked: _Asked) -> None:
    """Refuses what the check would misunderstand.

    Raises:
        ConfigError: Another algorithm than is known, or no release number.
    """
    wrong = []
    if asked.algorithm not in _ALGORITHMS:
        known = ", ".join(_ALGORITHMS)
        wrong.append(Problem("inspect", "--algorithm", f"{asked.algorithm}: one of {known}"))
    try:
        parse_version(asked.version or "0")
    except ValueError as error:
        wrong.append(Problem("inspect", "--version", f"{error}: write one such as 0.5.9"))
    if wrong:
        raise ConfigError(wrong)


def _judge(
    files: Files, asked: _Asked, path: str, target_path: str | None, version: str | None
) -> str:
    """Prints the result and returns its word.

    Raises:
        ConfigError: There is no such folder.
    """
    target = TargetFacts()
    if target_path is not None:
        if files.folder(target_path) is None:
            raise ConfigError([_no_folder("--target", target_path)])
        target = target_facts(files, target_path)
    engine = EngineFacts(
        framework="sglang",
        version=version,
        speculative_algorithm=asked.algorithm,
        context_length=asked.context_length,
    )
    found = inspect_folder(files, path, target, engine)
    if found is None:
        raise ConfigError([_no_folder("PATH", path)])
    typer.echo(inspection_text(path, found, target, engine))
    return found.result


def _no_folder(where: str, path: str) -> Problem:
    return Problem("inspect", where, f"no such folder: {path}")


def _version_on(agent: HostAgent) -> str | None:
    """SGLang's version in the host's engine environment; None where there is none."""
    python = agent.path(agent.host.python)
    try:
        answer = agent.call(
            "file", op="locate", python=python, package="sglang", relative="version.py"
        )
    except AgentRefusal:
        return None
    found = answer.get("version")
    return found if isinstance(found, str) else None
