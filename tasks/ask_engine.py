"""Asks the engine that is installed on a host for its own options, and refuses what it lacks."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, NamedTuple, assert_never

from configs.layers import arm_flags
from configs.plan import arm_env
from tasks.known_flags import Installed, ignored_here, must_ask, unknown_here
from tasks.launch import module_of
from tasks.venue import failed

if TYPE_CHECKING:
    from configs.releases import EngineKind
    from infra.host_agent import HostAgent
    from tasks.prepare import Survey
    from tasks.venue import Site

_ASK_S = 240.0
"""Its program imports torch before it reads its arguments."""


class _Question(NamedTuple):
    """How to get at an engine's parser."""

    file: str
    """Of the package: another size or time of it means another parser."""
    mark: str
    """An option that tells the right parser from others in the same program."""
    words: tuple[str, ...]


def _question(engine: EngineKind) -> _Question:
    match engine:
        case "sglang":
            return _Question(
                "srt/server_args.py", "model-path", ("--model-path", "/nonexistent-model")
            )
        case "vllm":
            return _Question("engine/arg_utils.py", "max-num-seqs", ("serve", "/nonexistent-model"))
        case _:
            assert_never(engine)


def ask_installed(
    agent: HostAgent, folder: str, engine: EngineKind, *, holder: str | None = None
) -> Installed:
    """The installed engine's version and options; asked once a version, then kept on the host.

    Args:
        agent: the hand on the host.
        folder: a folder of ours there, for the job.
        engine: which one.
        holder: who claims the host, if anybody does.
    """
    wanted = _question(engine)
    told = agent.job(
        folder,
        f"options-{engine}",
        "options",
        {
            "python": agent.path(agent.host.python_of(engine)),
            "package": engine,
            "file": wanted.file,
            "module": module_of(engine),
            "mark": wanted.mark,
            "words": list(wanted.words),
            "keep": posixpath.join(agent.root, "options"),
        },
        timeout_s=_ASK_S,
        holder=holder,
    )
    names = told.get("options")
    return Installed(
        engine=engine,
        version=told.get("version"),
        options=None if names is None else tuple(name for option in names for name in option),
        why=told.get("error") or told.get("message") or "",
    )


def check_flags(site: Site, found: Survey) -> tuple[str, ...]:
    """Refuses a flag that the installed engine does not know, before a model is loaded.

    Where the tables know this release, they decide at once; else its own parser is asked.

    Returns:
        Remarks for the record.

    Raises:
        StageFailedError: ``bad_arguments``.
    """
    engine = site.engine.kind
    flags = arm_flags(site.sweep, site.trial.arm, site.trial.levels)
    version = found.versions.get(engine)
    installed = Installed(engine=engine, version=version)
    if version is not None and must_ask(flags, engine, version):
        installed = ask_installed(site.agent, site.folder, engine, holder=site.holder)
    wrong = unknown_here(flags, installed)
    if wrong:
        raise failed("survey", "bad_arguments", "; ".join(wrong.values()))
    unread = ignored_here(arm_env(site.sweep, site.trial.arm, site.trial.levels), installed)
    unasked = (f"flags were not checked: {installed.why}",) if installed.why else ()
    return (*unasked, *unread.values())
