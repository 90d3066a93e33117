"""The command of a setting as a plan shows it: as it can be pasted into a shell, on each node."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from rich.text import Text

from configs.layers import engine_of
from configs.nodes import Joint
from configs.rules import looks_secret
from tasks.launch import Secrets, engine_argv, engine_env, secret_env

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from configs.host import Host
    from configs.sweep import Sweep

WIDTH: Final = 96
"""Columns of a plan."""


def commands(
    sweep: Sweep, nodes: Sequence[Host], arm: str, levels: dict[str, str]
) -> Iterator[Text]:
    """The command of one arm under these levels; of several nodes, each under its node's name."""
    lead = nodes[0]
    if len(nodes) == 1:
        yield from _command(sweep, lead, arm, levels, None)
        return
    first = Joint(len(nodes), 0, lead.address or lead.name, lead.dist_port or "DIST_PORT")
    for rank, node in enumerate(nodes):
        yield Text(f"  {node.name}:", style="dim")
        yield from _command(sweep, node, arm, levels, first._replace(rank=rank))


def _command(
    sweep: Sweep, host: Host, arm: str, levels: dict[str, str], joint: Joint | None
) -> Iterator[Text]:
    """The command as it can be pasted into a shell; secrets as stars."""
    has_key = host.api_key_from is not None and (joint is None or joint.leads)
    env = engine_env(sweep, host, arm, levels, joint)
    shown = {k: "***" if looks_secret(k) else v for k, v in env.items()}
    engine = engine_of(sweep, arm)
    hidden = secret_env(engine, Secrets({}, "***" if has_key else None))
    shown |= dict.fromkeys([*host.env_from, *engine.env_from, *hidden], "***")
    argv = engine_argv(
        sweep,
        host,
        arm,
        levels,
        port=host.port or "PORT",
        api_key="***" if has_key else None,
        joint=joint,
    )
    words = [f"{name}={shlex.quote(value)}" for name, value in shown.items()]
    words += [shlex.quote(argv[0]), *_pairs(argv[1:])]
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= WIDTH - 6:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    for index, line in enumerate(lines):
        indent = "  " if index == 0 else "    "
        yield Text(f"{indent}{line}" + (" \\" if index < len(lines) - 1 else ""))


def _pairs(argv: list[str]) -> Iterator[str]:
    """Quoted words, an option and its values as one, so that no line breaks between them.

    Only a pair that is longer than a line comes in two (vLLM's speculation is one long argument).
    """
    held: list[str] = []
    for word in [*argv, "-"]:
        if held and word.startswith("-"):
            whole = " ".join(held)
            yield from [whole] if len(whole) <= WIDTH - 6 else held
            held = []
        held.append(shlex.quote(word))
