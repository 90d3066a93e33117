"""Holds a plan against the engines that are installed on its hosts; starts none of them."""

from __future__ import annotations

import posixpath
import uuid
from typing import TYPE_CHECKING

from configs.flags import canonical
from configs.layers import (
    arm_flags,
    engine_kinds,
    engine_of,
    place_of,
    places,
    single_changes,
)
from configs.problems import ConfigError, Problem
from infra.connect import connect
from tasks.ask_engine import ask_installed
from tasks.known_flags import ignored_here, unknown_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from configs.host import Host
    from configs.sweep import Sweep
    from flows.question import Question
    from tasks.known_flags import Installed

_PATIENCE_S = 10.0
_FORGET_S = 20.0


def hold_against(question: Question, file: str, say: Callable[[str], None]) -> None:
    """Asks every engine of every host for its own options, and looks for each flag there.

    Args:
        question: what is planned.
        file: the sweep as its user named it.
        say: told what was found, and what is no mistake but should be known.

    Raises:
        ConfigError: Flags that an engine would refuse.
        WorldError: A host cannot be reached.
    """
    problems: list[Problem] = []
    for host in question.hosts.values():
        for installed in _installed(host, question.sweep):
            say(_line(host, installed))
            problems += _unknown(question.sweep, installed, file)
            for text in _ignored(question.sweep, installed):
                say(f"warning: {text}")
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))


def _installed(host: Host, sweep: Sweep) -> Iterator[Installed]:
    agent = connect(host, patience_s=_PATIENCE_S)
    folder = posixpath.join(agent.root, "trials", f"plan-{uuid.uuid4().hex[:12]}")
    try:
        agent.make_folder(folder)
        for kind in engine_kinds(sweep):
            yield ask_installed(agent, folder, kind)
        agent.shell.run(["rm", "-r", folder], timeout_s=_FORGET_S)
    finally:
        agent.close()


def _line(host: Host, installed: Installed) -> str:
    where = f"{host.name}: {installed.name} in {host.python_of(installed.engine)}"
    if installed.options is None:
        return f"{where}: its options could not be asked ({installed.why})"
    return f"{where}: its own parser has {len(installed.options)} option names"


def _unknown(sweep: Sweep, installed: Installed, file: str) -> Iterator[Problem]:
    kind = installed.engine
    if installed.version is None:
        yield Problem(file, "hosts", f"{installed.name}: name its Python in the host file")
        return
    for levels, arms in single_changes(sweep):
        for arm in arms:
            if engine_of(sweep, arm).kind != kind:
                continue
            for flag, message in unknown_here(arm_flags(sweep, arm, levels), installed).items():
                where = place_of(sweep, arm, levels, canonical(flag, kind))
                yield Problem(file, where, message)


def _ignored(sweep: Sweep, installed: Installed) -> Iterator[str]:
    for place in places(sweep):
        if installed.engine in place.engines:
            for name, message in ignored_here(place.env, installed).items():
                yield f"{place.where}.env.{name}: {message}"
