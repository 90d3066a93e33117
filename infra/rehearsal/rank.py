"""One tensor-parallel rank while it starts: its card, its log, its clock, its accidents."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.rehearsal import failures, memory, models
from infra.rehearsal.console import Console, raw
from infra.rehearsal.failures import Failure
from infra.rehearsal.rendezvous import Meeting, local_ranks, nodes

if TYPE_CHECKING:
    from pathlib import Path

    from infra.rehearsal.faults import Fault

_GIB_MIB = 1024
TOTAL_GIB = memory.TOTAL_MIB / _GIB_MIB

SHARES = {
    "distributed_init": 0.15,
    "target_weights": 0.55,
    "kv_cache": 0.60,
    "graph_capture": 0.75,
    "draft_weights": 0.80,
    "draft_graph_capture": 0.90,
}
"""When each stage ends, as a share of the whole start."""


@dataclass(frozen=True)
class Plan:
    """What the children need to know.

    Attributes:
        folder: of the pretend host.
        site: the pretend site-packages folder, for tracebacks.
        args: effective server settings.
        gpus: physical indices that are visible, in order.
        fault: what happens to this start, if anything.
        start_s: seconds of the whole start.
        began: when it began, monotonic.
    """

    folder: Path
    site: str
    args: dict[str, Any]
    gpus: list[int]
    fault: Fault | None
    start_s: float
    began: float

    def stages(self) -> list[str]:
        """The stages that this engine goes through."""
        known = list(SHARES)
        return known if self.args["speculative_algorithm"] else known[:4]


class Rank:
    """What the stages of a start share.

    Attributes:
        number: the rank.
        gpu: index of its card, -1 when there is none for it.
        model: the pretend target, once built.
        config: the target's config.
        tokens: size of the KV cache.
        accept_at: the drafter's acceptance.
        weight_gib: memory of the target's weights.
        graph_gib: memory of the captured graphs.
        free_at_start_gib: free memory before anything was loaded.
    """

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan, self.args, self.number = plan, plan.args, number
        here = local_ranks(plan.args)
        self.first = here.start
        """The first rank of this node, which speaks to the other nodes."""
        self.peers = plan.gpus[: len(here)]
        at = number - here.start
        self.gpu = plan.gpus[at] if at < len(plan.gpus) else -1
        self.meeting: Meeting | None = None
        suffix = f" TP{number}" if plan.args["tp_size"] > 1 else ""
        self.console = Console(plan.args["log_level"], suffix)
        self.say = self.console.say
        self.model: Any = None
        self.config: dict[str, Any] = {}
        self.tokens = 0
        self.accept_at: tuple[float, ...] = ()
        self.weight_gib = 0.0
        self.graph_gib = 0.0
        self.free_at_start_gib = 0.0
        self._held_gib = 0.0

    def meet(self) -> None:
        """Meets the other nodes, where there are any: the first rank for all of its node.

        Raises:
            Failure: they did not meet.
        """
        if nodes(self.args) > 1 and self.number == self.first:
            self.meeting = Meeting(self.args)

    def step(self) -> None:
        """Keeps step with the other nodes.

        Raises:
            Failure: one of them is gone.
        """
        if self.meeting is not None:
            self.meeting.step()

    def free_gib(self, gpu: int | None = None) -> float:
        """Free memory of its own card, or of another one."""
        held = memory.holders(self.plan.folder, self.gpu if gpu is None else gpu)
        return TOTAL_GIB - memory.used_mib(held) / _GIB_MIB

    def take(self, where: str, gib: float) -> None:
        """Hold more memory of the card.

        Raises:
            Failure: CUDA's out-of-memory text of that stage.
        """
        free = self.free_gib()
        if gib > free:
            raise failures.oom(where, self.gpu, gib, TOTAL_GIB, TOTAL_GIB - free)
        self._held_gib += gib
        memory.hold(self.plan.folder, self.gpu, round(self._held_gib * _GIB_MIB))

    def until(self, stage: str, part: float = 1.0) -> float:
        """Sleep until a part of a stage is over; seconds that it took so far.

        So a start takes the time it should, and the log tells no other times than a clock.
        """
        ends = SHARES[stage]
        begins = max((share for share in SHARES.values() if share < ends), default=0.0)
        moment = self.plan.began + self.plan.start_s * (begins + part * (ends - begins))
        time.sleep(max(0.0, moment - time.monotonic()))
        return max(0.0, time.monotonic() - self.plan.began - self.plan.start_s * begins)

    def accident(self, stage: str) -> None:
        """Let the planted fault of this stage happen to this rank.

        Raises:
            Failure: of a rank that dies with a text.
        """
        fault = self.plan.fault
        if fault is None or fault.when != stage:
            return
        everyone = fault.rank is None and fault.what in ("die", "oom")
        if not everyone and (self.first if fault.rank is None else fault.rank) != self.number:
            return
        match fault.what:
            case "die":
                raise Failure(stage, failures.PLANTED[stage])
            case "oom":
                raise failures.oom(stage, self.gpu, 2.5, TOTAL_GIB, TOTAL_GIB - 1.1)
            case "sigkill_scheduler":
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                while True:
                    signal.pause()

    def hook(self, where: str, name: str) -> None:
        """Call one of the methods that speculation needs on the target.

        Raises:
            Failure: the target lacks it, or it fails.
        """
        try:
            getattr(self.model, name)()
        except Exception as error:  # a patch may be wrong in any way
            raise Failure(where, models.last_line(error)) from error

    def captured(self) -> list[int]:
        """Batch sizes of the captured graphs, cut at the request pool."""
        pool = self.args["max_running_requests"] or 2048
        sizes = {size for size in self.args["cuda_graph_bs"] if size <= pool}
        if max(self.args["cuda_graph_bs"]) > pool:
            sizes.add(pool)
        return sorted(sizes)

    def shard_bar(self, count: int) -> None:
        """The progress bar of loading; it rewrites its line with carriage returns."""
        if self.number == 0:
            for done in sorted({0, count // 2, count}):
                raw(
                    f"\rLoading safetensors checkpoint shards: {100 * done // count:3d}% "
                    f"Completed | {done}/{count} [00:00<00:00, 61.3it/s]\r"
                )
            raw("\n")

    def capture_bar(self) -> None:
        """The progress bar of graph capture."""
        if self.number == 0:
            sizes, free = self.captured(), self.free_gib()
            raw(f"\r  0%|          | 0/{len(sizes)} [00:00<?, ?it/s]")
            for done, size in enumerate(reversed(sizes)):
                share = 100 * done // len(sizes)
                raw(
                    f"\rCapturing batches (bs={size} avail_mem={free:.2f} GB): "
                    f"{share:3d}%|{'█' * (share // 10):10}| {done}/{len(sizes)} "
                    "[00:01<00:02, 4.11it/s]"
                )
            raw("\n")
