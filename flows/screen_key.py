"""What a sweep's screens are called, and which of them fits a question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.layers import engine_of
from configs.plan import hash_of

if TYPE_CHECKING:
    from flows.question import Question

_SUFFIX = ".screen"


def screen_name(sweep: str) -> str:
    """What a sweep's screens are called among the run folders."""
    return f"{sweep}{_SUFFIX}"


def screen_key(question: Question, factor: str) -> str:
    """Hash of what a screen depends on: its host, engine, arms, levels and sizes.

    Not on how many levels are to stay, nor on how many starts there were: that is asked of the
    screen that was made.
    """
    sweep = question.sweep
    return hash_of(
        {
            "hosts": {
                name: [host.host_class, host.python, host.env, host.gpus]
                for name, host in question.hosts.items()
            },
            "engine": engine_of(sweep, sweep.baseline).model_dump(mode="json"),
            "arms": {name: arm.model_dump(mode="json") for name, arm in sweep.arms.items()},
            "baseline": sweep.baseline,
            "levels": {
                name: level.model_dump(mode="json") for name, level in sweep.factors[factor].items()
            },
            "users": sorted({c for probe in sweep.probes.values() for c in probe.concurrency}),
            "factor": factor,
        }
    )
