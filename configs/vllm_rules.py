"""What arms of vLLM ask for and would not get, or could not be measured by; known from the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from configs.layers import engine_kinds, engine_of, place_of
from configs.probe import profiles_of
from configs.problems import Said
from configs.speculation import Off
from configs.vllm import not_for_vllm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.host import Host
    from configs.sweep import Sweep

_TOO_QUIET: Final = {"critical", "error", "warning"}
_LOCAL: Final = {"127.0.0.1", "::1", "localhost"}


def vllm_problems(sweep: Sweep) -> Iterator[Said]:
    """Ways of speculating that vLLM cannot do, and settings that hide what is measured."""
    for name in _arms(sweep):
        arm = sweep.arms[name]
        for key, message in not_for_vllm(arm.speculation):
            yield Said(f"arms.{name}.speculation.{key}", message)
        if arm.simulate is not None:
            yield Said(
                f"arms.{name}.simulate",
                "is of SGLang alone: vLLM 0.33 is told no acceptance to pretend here; leave it out",
            )
        flags = {**engine_of(sweep, name).flags, **arm.flags}
        if flags.get("uvicorn-log-level") in _TOO_QUIET:
            where = place_of(sweep, name, {}, "uvicorn-log-level")
            yield Said(where, "hides the line by which a start is known to be over: leave it out")
        if not isinstance(arm.speculation, Off) and flags.get("disable-log-stats") is True:
            yield Said(
                f"arms.{name}.speculation",
                "could not be measured: disable-log-stats takes the counters away that alone tell "
                "vLLM's acceptance; leave it out",
            )
    yield from _of_sglang_alone(sweep)


def _of_sglang_alone(sweep: Sweep) -> Iterator[Said]:
    """Parts of a sweep that speak to SGLang: its profiler, and its ranks under a screen."""
    there = _arms(sweep)
    if there:
        for name in profiles_of(sweep.probes):
            yield Said(
                f"probes.{name}",
                f"records decode steps with SGLang's profiler, and {', '.join(there)} run on vLLM: "
                "ask for it in a sweep of SGLang's arms",
            )
    if sweep.screen is not None and (message := no_screen(sweep)) is not None:
        yield Said("screen", message)


def no_screen(sweep: Sweep) -> str | None:
    """Why a sweep's factors cannot be screened; None where they can."""
    there = _arms(sweep)
    if not there:
        return None
    return (
        f"judges what carries SGLang's all-reduces, and {', '.join(there)} run on vLLM: screen in a "
        "sweep of SGLang's arms"
    )


def _arms(sweep: Sweep) -> list[str]:
    return [name for name in sweep.arms if engine_of(sweep, name).kind == "vllm"]


def vllm_on_host(sweep: Sweep, host: Host) -> Iterator[Said]:
    """A host on which vLLM would serve to others what it serves without a key."""
    if "vllm" in engine_kinds(sweep) and host.listen not in _LOCAL:
        yield Said(
            "hosts",
            f"host {host.name} listens on {host.listen}: vLLM serves /reset_prefix_cache and "
            "/server_info without a key there; set listen: 127.0.0.1",
        )
