"""What is kept of each node of a place, where several served one model together."""

from __future__ import annotations

from configs.values import Value


class NodeFacts(Value):
    """One node: what ran there, and on what.

    Its facts and log lie in ``nodes/<name>``, those of the leading node beside the record.
    """

    name: str
    rank: int
    """0 leads: it served, and was asked."""
    command: tuple[str, ...]
    """The engine's argv there."""
    environment: dict[str, str]
    """What was added to the engine's environment there; secrets are left out."""
    versions: dict[str, str]
    """engine, torch, driver, python."""
    gpus: tuple[str, ...]
    """Names of its GPUs."""
    warnings: tuple[str, ...] = ()
    """What nvidia-smi showed that is not as it should be."""
