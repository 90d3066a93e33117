"""What the pretend vLLM does while it starts, stage by stage, with the log of each stage.

Order and wording follow 0.33.0 (v1/engine/core.py, v1/worker/gpu_model_runner.py): target and
drafter are loaded together, then the KV cache is sized by what is left, then graphs are captured.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from infra.rehearsal import failures, memory, models, vllm_words
from infra.rehearsal.console import raw
from infra.rehearsal.failures import Failure
from infra.rehearsal.rank import SHARES, TOTAL_GIB
from infra.rehearsal.rendezvous import Meeting, local_ranks, nodes
from infra.rehearsal.startup import TOKEN_BYTES
from infra.rehearsal.vllm_console import VllmConsole
from infra.rehearsal.vllm_workers import Workers

if TYPE_CHECKING:
    from infra.rehearsal.rank import Plan

_GIB = 1024**3
_GIB_MIB = 1024
_CONTEXT_GIB = 0.9
_TARGET_GIB = 71.3 * 8
_DRAFTER_GIB = 3.2
_GRAPH_GIB = 0.6
_SHARDS = 64


class Start:
    """One start.

    Attributes:
        workers: once they are forked.
        meeting: the connections to the other nodes, where there are any.
    """

    def __init__(self, plan: Plan) -> None:
        self.workers: Workers | None = None
        self.meeting: Meeting | None = None
        self._plan, self._args = plan, plan.args
        self._here = local_ranks(plan.args)
        leads, first = plan.args["node_rank"] == 0, self._here.start
        self._core = VllmConsole("EngineCore") if leads else None
        alone = plan.args["tp_size"] == 1
        self._worker = VllmConsole("EngineCore" if alone else f"Worker_TP{first}")
        self._accept_at: tuple[float, ...] = ()

    def load(self) -> dict[str, Any]:
        """Everything up to the first request; what was found.

        Raises:
            Failure: what the engine dies of.
        """
        args, tp = self._args, self._args["tp_size"]
        told = args["speculation"]
        shown = (
            f"SpeculativeConfig(method={told['method']!r}, model={told.get('model')!r}, "
            if told
            else ""
        )
        shown += f"num_spec_tokens={args['speculative_num_steps']})" if told else "None"
        self._say(
            f"Initializing a V1 LLM engine (v0.33.0) with config: model={args['model']!r}, "
            f"speculative_config={shown}, tensor_parallel_size={tp}, "
            f"enforce_eager={bool(args['enforce_eager'])}, seed={args['seed']}"
        )
        config = models.config_of(args["model"], "arguments")
        free = self._check_cards()
        self.workers = Workers(self._plan)
        self._worker.say(
            f"world_size={tp} rank={self._here.start} local_rank=0 backend=nccl",
            "parallel_state.py:1342",
        )
        self._accident("distributed_init")
        if nodes(args) > 1:
            self.meeting = Meeting(args)
        self._worker.say("vLLM is using nccl==2.27.5", "pynccl.py:111")
        self._take("distributed_init", _CONTEXT_GIB)
        self._until("distributed_init")
        self._worker.say(f"Starting to load model {args['model']}...", "gpu_model_runner.py:4979")
        self._accident("target_weights")
        raw(f"\rLoading safetensors checkpoint shards: 100% Completed | {_SHARDS}/{_SHARDS} ")
        raw("[00:00<00:00, 61.3it/s]\n")
        weights = _TARGET_GIB / tp
        self._take("target_weights", weights)
        took = self._until("target_weights")
        self._worker.say(f"Loading weights took {took:.2f} seconds", "default_loader.py:308")
        if told:
            weights += self._draft()
        self._worker.say(
            f"Model loading took {weights:.2f} GiB memory and {took:.6f} seconds",
            "gpu_model_runner.py:5089",
        )
        tokens = self._pool(free)
        graphs = self._graphs()
        whole = time.monotonic() - self._plan.began
        self._say(
            f"init engine (profile, create kv cache, warmup model) took {whole:.2f} s",
            "core.py:413",
        )
        return {
            "tokens": tokens,
            "accept_at": self._accept_at,
            "weight_gib": weights,
            "graph_gib": _GRAPH_GIB if graphs else 0.0,
            "captured": graphs,
            "config": config,
        }

    def _say(self, text: str, place: str = "core.py:140") -> None:
        """What the engine core says; only the leading node has one."""
        if self._core is not None:
            self._core.say(text, place)

    def _check_cards(self) -> float:
        """Refuses a card of which somebody has a part, as 0.33 does before it loads."""
        wanted: float = self._args["gpu_memory_utilization"] * TOTAL_GIB
        if len(self._here) > len(self._plan.gpus):
            raise Failure("distributed_init", "RuntimeError: CUDA error: invalid device ordinal")
        for gpu in self._plan.gpus[: len(self._here)]:
            held = memory.holders(self._plan.folder, gpu)
            free = TOTAL_GIB - memory.used_mib(held) / _GIB_MIB
            if free < wanted:
                raise Failure(
                    "distributed_init",
                    f"ValueError: Free memory on device cuda:{gpu} ({free:.2f}/{TOTAL_GIB:.2f} GiB) "
                    f"on startup is less than desired GPU memory utilization "
                    f"({self._args['gpu_memory_utilization']}, {wanted:.2f} GiB). Decrease GPU "
                    "memory utilization or reduce GPU memory used by other processes.",
                )
        return wanted

    def _draft(self) -> float:
        """The drafter's weights; GiB of them on a card."""
        args = self._args
        drafter, algorithm = args["speculative_draft_model_path"], args["speculative_algorithm"]
        gib = 0.0
        self._accident("draft_weights")
        if algorithm != "NGRAM" and drafter is not None:
            self._worker.say("Loading drafter model...", "gpu_model_runner.py:5010")
            models.config_of(drafter, "draft_weights")
            gib = _DRAFTER_GIB / args["tp_size"] if models.tensors_of(drafter) else 0.01
            self._take("draft_weights", gib)
            took = self._until("draft_weights")
            self._worker.say(f"Loading weights took {took:.2f} seconds", "default_loader.py:308")
        self._accept_at = models.acceptance(algorithm, drafter)
        return gib

    def _pool(self, wanted_gib: float) -> int:
        assert self.workers is not None
        self._accident("kv_cache")
        room = wanted_gib - self.workers.held_gib - _GRAPH_GIB
        if room <= 0.01:
            raise Failure(
                "kv_cache",
                "ValueError: No available memory for the cache blocks. Try increasing "
                "`gpu_memory_utilization` when initializing the engine.",
            )
        self._worker.say(f"Available KV cache memory: {room:.2f} GiB", "gpu_worker.py:773")
        tokens = int(room * _GIB / TOKEN_BYTES) // 16 * 16
        length = self._args["context_length"]
        self._say(f"GPU KV cache size: {tokens:,} tokens", "kv_cache_utils.py:1144")
        self._say(
            f"Maximum concurrency for {length:,} tokens per request: {tokens / length:.2f}x",
            "kv_cache_utils.py:1149",
        )
        self._take("kv_cache", tokens * TOKEN_BYTES / _GIB)
        self._until("kv_cache")
        return tokens

    def _graphs(self) -> list[int]:
        if self._args["disable_cuda_graph"]:
            return []
        self._accident("graph_capture")
        per_request = (self._args["speculative_num_steps"] or 0) + 1
        largest = self._args["max_cudagraph_capture_size"] // per_request
        sizes = sorted({1, 2, 4, *range(8, largest + 1, 8), largest} - {0})
        raw(f"\rCapturing CUDA graphs (decode, FULL): 100%|██████████| {len(sizes)}/{len(sizes)} ")
        raw("[00:00<00:00, 41.0it/s]\n")
        self._take("graph_capture", _GRAPH_GIB)
        self._accident("draft_graph_capture")
        took = self._until("draft_graph_capture")
        self._worker.say(
            f"Graph capturing finished in {took:.0f} secs, took {_GRAPH_GIB:.2f} GiB",
            "gpu_model_runner.py:6517",
        )
        return sizes

    def _take(self, where: str, gib: float) -> None:
        """Every worker holds more of its card."""
        assert self.workers is not None
        before = self.workers.held_gib
        if before + gib > TOTAL_GIB:
            raise _full(where, 0, gib, before)
        self.workers.take(gib)

    def _until(self, stage: str) -> float:
        """Sleeps until a stage's share of the start is over; seconds since the stage before."""
        ends = SHARES[stage]
        begins = max((share for share in SHARES.values() if share < ends), default=0.0)
        moment = self._plan.began + self._plan.start_s * ends
        time.sleep(max(0.0, moment - time.monotonic()))
        if self.meeting is not None:
            self.meeting.step()
        return self._plan.start_s * (ends - begins)

    def _accident(self, stage: str) -> None:
        """Lets the planted fault of this stage happen."""
        fault = self._plan.fault
        if fault is None or fault.when != stage:
            return
        match fault.what:
            case "die":
                raise Failure(stage, vllm_words.PLANTED[stage])
            case "oom":
                raise _full(stage, fault.rank or 0, 2.5, TOTAL_GIB - 1.1)
            case "sigkill_scheduler":
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                while True:
                    signal.pause()


def _full(where: str, gpu: int, want_gib: float, used_gib: float) -> Failure:
    """A full card; vLLM adds nothing to what torch says."""
    told = failures.out_of_memory(gpu, want_gib, TOTAL_GIB, used_gib)
    return Failure(where, f"torch.OutOfMemoryError: {told}")
