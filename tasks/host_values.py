"""What a comparison says of the hosts it ran on: each host's ratios, their spread, and who is unlike."""

from __future__ import annotations

from configs.values import Value


class HostRatio(Value):
    """The leading figure of one setting against its reference in the blocks of one host."""

    probe: str
    concurrency: int
    arm: str
    levels: dict[str, str]
    reference_arm: str
    reference_levels: dict[str, str]
    host: str
    blocks: int
    ratio: float
    reference_value: float
    """Geometric mean of the reference over these blocks, in the metric's unit: whether the host is
    slow as a whole, which cancels in the ratio."""


class HostSpreads(Value):
    """How far the ratios of a probe and concurrency differ from host to host."""

    probe: str
    concurrency: int
    sd: float | None
    """Standard deviation of a ratio between hosts, as a share, without the noise of boots; pooled
    over settings. None: every host ran one block, which cannot be told apart."""
    widens: float | None
    """By what the hosts made the intervals wider, the median over the settings (each alone)."""


class OddHost(Value):
    """A host on which a setting's ratio is not what it is on the others, beyond the noise."""

    host: str
    arm: str
    levels: dict[str, str]
    ratio: float
    """The ratio there over that on the others, averaged over the ladder."""
    p: float
    """Chance of any such host in a sweep on hosts that are all equal (Bonferroni)."""


class HostsCompared(Value):
    """The hosts of a comparison, held against one another by the leading figure."""

    hosts: tuple[str, ...]
    metric: str
    ratios: tuple[HostRatio, ...]
    spreads: tuple[HostSpreads, ...]
    apart: float | None
    """Largest difference between two hosts in any setting's ratio, averaged over the ladder, as a
    share; None where no setting ran on two hosts."""
    odd: tuple[OddHost, ...]
    """The furthest first."""
    sentence: str
    """All of this in words."""
