"""One process of a world that times all-reduce: the only module of the agent that needs torch.

Orders come on stdin, one JSON object a line; answers go to a pipe of their own, since libraries
write to stdout as they like.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import time
from typing import Any

CALLS_PER_GRAPH = 20
WARM_CALLS = 5


def rank(asked: dict[str, Any]) -> dict[str, Any]:
    """The life of a rank: ready, then a measurement for every order, until stdin ends."""
    with os.fdopen(int(asked["answers"]), "w", encoding="utf-8") as answers:

        def say(value: dict[str, Any]) -> None:
            answers.write(json.dumps(value) + "\n")
            answers.flush()

        try:
            bench = _open(asked)
            say(bench.about())
            for line in sys.stdin:
                say({"seconds": bench.measure(json.loads(line)["repeats"])})
        except Exception as fault:
            lines = str(fault).strip().splitlines()
            say({"error": type(fault).__name__, "message": "; ".join(lines[:4])[:1000]})
    # A process group whose other members are gone can hang in its own end; nothing is left to do.
    os._exit(0)


def _open(asked: dict[str, Any]) -> Any:
    """Joins the world, and makes what is to be measured."""
    import torch
    import torch.distributed as dist

    cuda = torch.cuda.is_available() and torch.cuda.device_count() >= int(asked["world"])
    if cuda:
        torch.cuda.set_device(int(asked["rank"]))
    else:
        # All ranks are on this machine: gloo would look for the host's own name otherwise.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"file://{asked['store']}",
        rank=int(asked["rank"]),
        world_size=int(asked["world"]),
        timeout=dt.timedelta(seconds=float(asked["timeout_s"])),
    )
    device = torch.device("cuda", int(asked["rank"])) if cuda else torch.device("cpu")
    dtype = getattr(torch, asked["dtype"])
    # Zeros: a sum that is added up a million times must not leave the numbers' range.
    messages = [torch.zeros(count, dtype=dtype, device=device) for count in asked["elements"]]
    # The engine gathers its logits too: a setting under which that fails cannot serve
    # (NCCL_ALGO=Tree: there is no tree for it), however fast it may reduce.
    gathered = torch.empty(int(asked["world"]) * 16, dtype=dtype, device=device)
    dist.all_gather_into_tensor(gathered, gathered[:16].clone())
    for message in messages:
        for _ in range(WARM_CALLS):
            dist.all_reduce(message)
    if not cuda:
        return _Plain(torch, dist, messages)
    torch.cuda.synchronize()
    return _Graphs(torch, dist, messages)


class _Plain:
    """Calls as they come, timed by this process's clock: gloo on a machine without GPUs."""

    def __init__(self, torch: Any, dist: Any, messages: list[Any]) -> None:
        self.torch = torch
        self.dist = dist
        self.messages = messages

    def about(self) -> dict[str, Any]:
        return {
            "torch": self.torch.__version__,
            "backend": "gloo",
            "graphs": False,
            "device": "cpu",
            "nccl": None,
            "per_repeat": 1,
        }

    def measure(self, repeats: list[int]) -> list[float]:
        """Seconds a call, for every size."""
        found = []
        for index, count in enumerate(repeats):
            message = self.messages[index]
            self.dist.all_reduce(message)  # together from here on
            began = time.perf_counter()
            for _ in range(count):
                self.dist.all_reduce(message)
            found.append((time.perf_counter() - began) / count)
        return found


class _Graphs:
    """CUDA graphs of several calls each, as the engine decodes, timed by events on the GPU."""

    def __init__(self, torch: Any, dist: Any, messages: list[Any]) -> None:
        self.torch = torch
        self.stream = torch.cuda.Stream()
        self.graphs = []
        for message in messages:
            graph = torch.cuda.CUDAGraph()
            # torch's watchdog thread asks CUDA too; only our own thread is being recorded.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                for _ in range(CALLS_PER_GRAPH):
                    dist.all_reduce(message)
            self.graphs.append(graph)

    def about(self) -> dict[str, Any]:
        cuda = self.torch.cuda
        return {
            "torch": self.torch.__version__,
            "backend": "nccl",
            "graphs": True,
            "device": cuda.get_device_name(),
            "nccl": ".".join(str(part) for part in cuda.nccl.version()),
            "per_repeat": CALLS_PER_GRAPH,
        }

    def measure(self, repeats: list[int]) -> list[float]:
        """Seconds a call, for every size.

        A first replay is not timed: in it the GPUs wait for the last one to come.
        """
        cuda = self.torch.cuda
        found = []
        with cuda.stream(self.stream):
            for index, count in enumerate(repeats):
                graph = self.graphs[index]
                begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
                graph.replay()
                begin.record()
                for _ in range(count):
                    graph.replay()
                end.record()
                end.synchronize()
                found.append(begin.elapsed_time(end) / 1e3 / count / CALLS_PER_GRAPH)
        return found
