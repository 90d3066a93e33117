"""The pretend vLLM 0.33: what ``python -m vllm.entrypoints.cli.main serve`` runs on the pretend host."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from infra.rehearsal import faults, knobs, memory, truth, vllm_words
from infra.rehearsal.accidents import Accidents
from infra.rehearsal.console import raw
from infra.rehearsal.engine import MARKER
from infra.rehearsal.rank import Plan
from infra.rehearsal.serving import Loaded
from infra.rehearsal.vllm_args import VERSION, WrongSpeculationError, parser, settle
from infra.rehearsal.vllm_console import VllmConsole
from infra.rehearsal.vllm_core import Core, CoreDied
from infra.rehearsal.vllm_headless import stand_by
from infra.rehearsal.vllm_serving import VllmServer
from infra.rehearsal.wire import Connection

_LOOK_S = 0.2


def main(folder: Path, arguments: list[str]) -> int:
    """Run one server until it ends; the exit code is vLLM's.

    Args:
        folder: of the pretend host.
        arguments: the command line, without the program.
    """
    began = time.monotonic()
    given = parser().parse_args(arguments)
    console, settings = VllmConsole("APIServer"), knobs.read(folder)
    trial = os.environ.get(MARKER, "")
    try:
        args = settle(given)
    except WrongSpeculationError as wrong:
        _traceback(
            folder,
            "create_speculative_config",
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for "
            f"SpeculativeConfig\n  Value error, {wrong} [type=value_error, input_type=ArgsKwargs]",
        )
        return 1
    args["api_key"] = os.environ.get("VLLM_API_KEY") or args["api_key"]
    args["dev_mode"] = os.environ.get("VLLM_SERVER_DEV_MODE") == "1"
    if args["headless"]:
        return stand_by(_plan(folder, args, settings, trial, began))
    console.say(f"vLLM server version {VERSION}, serving model {args['model']}", "startup.py:38")
    console.say(f"non-default args: {args.pop('given')}", "startup.py:96")
    listening = _bind(args["host"] or "0.0.0.0", args["port"])
    if listening is None:
        _traceback(folder, "create_server_socket", "OSError: [Errno 98] Address already in use")
        return 1
    drafter = args["speculative_draft_model_path"]
    early = faults.take(folder, trial, drafter, "arguments")
    if early is not None:
        while early.what == "hang":
            signal.pause()
        _traceback(folder, "create_model_config", vllm_words.PLANTED["arguments"])
        return 1
    plan = _plan(folder, args, settings, trial, began)
    core = Core(plan)
    try:
        facts = core.load()
    except CoreDied:
        _traceback(
            folder,
            "wait_for_engine_startup",
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core "
            "proc(s): {}",
        )
        return 1
    loaded = Loaded(
        args=args,
        config=facts["config"],
        arm=truth.arm_of(args, tuple(facts["accept_at"]), os.environ, engine="vllm"),
        noise=settings.noise(trial),
        time_scale=settings.time_scale,
        facts=facts,
        counts="metrics",
    )
    return asyncio.run(_serve(plan, loaded, core, listening, (trial, drafter)))


def _plan(
    folder: Path, args: dict[str, Any], settings: knobs.Knobs, trial: str, began: float
) -> Plan:
    return Plan(
        folder=folder,
        site=str(folder / "home" / "site"),
        args=args,
        gpus=list(range(memory.GPUS)),
        fault=_first_fault(folder, args, trial),
        start_s=settings.start_s,
        began=began,
    )


def _bind(host: str, port: int) -> socket.socket | None:
    """0.33 binds before it loads, so that a taken port is told at once; None if it is."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError:
        made.close()
        return None
    return made


def _first_fault(folder: Path, args: dict[str, Any], trial: str) -> faults.Fault | None:
    """Consume the earliest start fault that is planned for this engine."""
    drafter = args["speculative_draft_model_path"]
    known = ["distributed_init", "target_weights", "kv_cache", "graph_capture"]
    known += ["draft_weights", "draft_graph_capture"] if args["speculation"] else []
    for stage in known:
        fault = faults.take(folder, trial, drafter, stage)
        if fault is not None:
            return fault
    return None


def _traceback(folder: Path, function: str, text: str) -> None:
    """A failure of the API server, before or behind its engine core's."""
    head = f"(APIServer pid={os.getpid()}) "
    lines = [
        "Traceback (most recent call last):",
        f'  File "{folder}/home/site/vllm/entrypoints/cli/main.py", line 118, in main',
        "    args.dispatch_function(args)",
        f'  File "{folder}/home/site/vllm/engine/arg_utils.py", line 2410, in {function}',
        *text.split("\n"),
    ]
    raw("".join(f"{head}{line}\n" for line in lines))


async def _serve(
    plan: Plan, loaded: Loaded, core: Core, listening: socket.socket, who: tuple[str, str | None]
) -> int:
    """Serve until SIGTERM (exit code 0), or until the engine core is dead (1)."""
    loop, console = asyncio.get_running_loop(), VllmConsole("APIServer")
    server = VllmServer(loop, loaded, console)
    host, port = listening.getsockname()[:2]
    console.say(f"Starting vLLM server on http://{host}:{port}", "entry.py:139")
    console.plain(f"INFO:     Started server process [{os.getpid()}]")
    console.plain("INFO:     Waiting for application startup.")
    hanging = faults.take(plan.folder, *who, "warmup")
    await loop.create_server(lambda: Connection(server.handle, server.access), sock=listening)
    console.plain("INFO:     Application startup complete.")
    if hanging is not None:
        server.decoding.frozen = True
    server.status = "up"
    server.accidents = Accidents((plan.folder, *who), server, core, _Quiet())
    server.accidents.ready()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    while not ended.is_set():
        try:
            await asyncio.wait_for(ended.wait(), _LOOK_S)
        except TimeoutError:
            if core.is_gone():
                return _dead(plan, console)
    for line in ("Shutting down", "Waiting for application shutdown."):
        console.plain(f"INFO:     {line}")
    core.end()
    console.plain("INFO:     Application shutdown complete.")
    console.plain(f"INFO:     Finished server process [{os.getpid()}]")
    return 0


def _dead(plan: Plan, console: VllmConsole) -> int:
    text = (
        f'AsyncLLM output_handler failed.\nTraceback (most recent call last):\n  File "{plan.site}'
        '/vllm/v1/engine/async_llm.py", line 712, in output_handler\nvllm.v1.engine.exceptions.'
        "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root "
        "cause."
    )
    console.say(text, "async_llm.py:731", "ERROR")
    return 1


class _Quiet:
    """vLLM says nothing of a request that it takes back."""

    def say(self, message: str, level: str = "info") -> None:
        """Nothing."""


def run(folder: str) -> NoReturn:
    """Entry of the pretend ``vllm.entrypoints.cli.main``."""
    sys.exit(main(Path(folder), sys.argv[1:]))
