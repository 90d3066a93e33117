"""The pretend SGLang 0.5.9: what ``python -m sglang.launch_server`` runs on the pretend host."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from infra.rehearsal import failures, faults, flags, knobs, life, memory, models, truth
from infra.rehearsal.console import Console, raw
from infra.rehearsal.rank import Plan
from infra.rehearsal.ranks import Children, RankZeroDied, kill_tree
from infra.rehearsal.serving import Loaded
from infra.rehearsal.silent import stand_by

MARKER = "EAGLE3_SWEEP_TRIAL"
_OVERWRITTEN = "CUDA_DEVICE_MAX_CONNECTIONS"


@dataclass(frozen=True)
class _Asked:
    """One launch as it was asked for."""

    folder: Path
    settings: knobs.Knobs
    args: dict[str, Any]
    console: Console
    trial: str
    drafter: str | None


def main(folder: Path, arguments: list[str]) -> int:
    """Run one server until it ends; the exit code is that of a launch that failed early.

    Args:
        folder: of the pretend host.
        arguments: the command line, without the program.
    """
    began = time.monotonic()
    _overwrite_environment()
    args, warnings = flags.settle(flags.parser().parse_args(arguments))
    asked = _Asked(
        folder=folder,
        settings=knobs.read(folder),
        args=args,
        console=Console(args["log_level"]),
        trial=os.environ.get(MARKER, ""),
        drafter=args["speculative_draft_model_path"] if args["speculative_algorithm"] else None,
    )
    for warning in warnings:
        asked.console.say(warning, "warning")
    try:
        config = models.config_of(args["model_path"], "arguments")
    except failures.Failure as failure:
        return _launcher_traceback(folder, failure.text)
    early = faults.take(folder, asked.trial, asked.drafter, "arguments")
    if early is not None:
        while early.what == "hang":
            signal.pause()
        return _launcher_traceback(folder, failures.PLANTED["arguments"])
    shown = ", ".join(f"{name}={value!r}" for name, value in args.items())
    asked.console.say(f"server_args=ServerArgs({shown})")
    plan = Plan(
        folder=folder,
        site=str(folder / "home" / "site"),
        args=args,
        gpus=_visible_gpus(),
        fault=None,
        start_s=asked.settings.start_s,
        began=began,
    )
    return _launch(asked, replace(plan, fault=_first_fault(asked, plan)), config)


def _overwrite_environment() -> None:
    """What 0.5.9 writes itself (srt/entrypoints/engine.py, _set_envs_and_config).

    The real ranks are started anew and so have the changed environment; these are forked and would
    show the old one. So where a value was asked for and is overwritten, this process begins again.
    """
    os.environ.setdefault("NCCL_CUMEM_ENABLE", "0")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    asked = os.environ.get(_OVERWRITTEN)
    os.environ[_OVERWRITTEN] = "8"
    if asked not in (None, "8"):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ)


def _launcher_traceback(folder: Path, text: str) -> int:
    """A failure of the launcher itself, before or instead of its children's."""
    site = folder / "home" / "site"
    raw(
        "Traceback (most recent call last):\n"
        '  File "<frozen runpy>", line 198, in _run_module_as_main\n'
        '  File "<frozen runpy>", line 88, in _run_code\n'
        f'  File "{site}/sglang/launch_server.py", line 24, in <module>\n'
        "    server_args = prepare_server_args(sys.argv[1:])\n"
        f'  File "{site}/sglang/srt/server_args.py", line 668, in __post_init__\n'
        "    self._handle_missing_default_values()\n"
        f"{text}\n"
    )
    return 1


def _visible_gpus() -> list[int]:
    """Physical indices in the order of CUDA_VISIBLE_DEVICES (0.5.9 reads integers only)."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(range(memory.GPUS))
    return [int(index) for index in visible.split(",") if index.strip()]


def _first_fault(asked: _Asked, plan: Plan) -> faults.Fault | None:
    """Consume the earliest start fault that is planned for this engine."""
    for stage in plan.stages():
        fault = faults.take(plan.folder, asked.trial, asked.drafter, stage)
        if fault is not None:
            return fault
    return None


def _launch(asked: _Asked, plan: Plan, config: dict[str, Any]) -> int:
    """Start the children, load, and serve."""
    console = asked.console
    # A rank may fail before its parent is ready to hear of it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGQUIT})
    children = Children(plan)

    def child_failed(signum: int, frame: object) -> None:
        del signum, frame
        console.say(
            "Received sigquit from a child process. It usually means the child failed.", "error"
        )
        kill_tree(children)

    signal.signal(signal.SIGQUIT, child_failed)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGQUIT})
    try:
        facts = children.load()
    except RankZeroDied:
        console.say("Rank 0 scheduler is dead. Please check if there are relevant logs.", "error")
        console.say(f"Exit code: {children.exit_code_of_rank_zero()}", "error")
        children.kill_all()
        return _launcher_traceback(plan.folder, "EOFError")
    if asked.args["node_rank"] > 0:
        return asyncio.run(stand_by(asked.args, children, console))
    loaded = Loaded(
        args=asked.args,
        config=config,
        arm=truth.arm_of(asked.args, tuple(facts["accept_at"]), os.environ),
        noise=asked.settings.noise(asked.trial),
        time_scale=asked.settings.time_scale,
        facts=facts,
        counts=asked.settings.counts,
    )
    served = life.Life(plan, asked.settings, loaded, children, console)
    return asyncio.run(served.live(asked.trial, asked.drafter))


def run(folder: str) -> NoReturn:
    """Entry of the pretend ``sglang.launch_server``."""
    sys.exit(main(Path(folder), sys.argv[1:]))
