"""Feeds random bytes to everything that reads foreign text: no exception but our own may come out.

`python -m fuzz.targets` prints the targets, `python -m fuzz.targets NAME [libFuzzer options]` runs
one. Found inputs are kept in build/fuzz/NAME, beside the seeds from tests/fixtures. An input that
takes longer than ten seconds, or a gigabyte, counts as a failure (`make fuzz` says so to libFuzzer).
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import atheris

with atheris.instrument_imports(include=["tasks", "configs", "infra"]):
    from configs.patch import Delegate, Patch
    from configs.problems import ConfigError
    from configs.read import parse_sweep
    from infra.agent.answers import Answer, Malformed
    from infra.agent.completions import CompletionsStream
    from infra.agent.streams import GenerateStream
    from infra.fits_mlflow import PARAM_LIMIT, fit
    from tasks.bench_result import read_bench
    from tasks.chat_template import ChatTemplateError, read_chat_template, render
    from tasks.decode_log import DecodeLog
    from tasks.drafter import check_drafter
    from tasks.drafter_verdict import EngineFacts, TargetFacts
    from tasks.effective import effective_settings
    from tasks.failures import Scene, classify, failure_from
    from tasks.generation import read_generation
    from tasks.gpus import survey_gpus
    from tasks.nccl_log import read_nccl_log
    from tasks.patching import apply_patch
    from tasks.process_list import read_ps
    from tasks.processes import Leader, split_by_leader, teardown_step
    from tasks.prometheus import read_metrics
    from tasks.prompts import read_prompts
    from tasks.reduce_path import read_said, reduce_path
    from tasks.safetensors_header import NotSafetensorsError, integers, read_header, read_index
    from tasks.samples import read_rows
    from tasks.server_info import read_server_info
    from tasks.start_log import StartLog
    from tasks.topology import read_topology
    from tasks.topology_warnings import topology_warnings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "build" / "fuzz"
FIXTURES = ROOT / "tests" / "fixtures"

_TARGET = TargetFacts(hidden_size=7168, vocab_size=163840, layers=61, context=262144)
_PATCH = Patch(
    name="fuzz",
    module="srt/models/kimi_k25.py",
    class_name="KimiK25ForConditionalGeneration",
    methods=(Delegate(name="get_embed_and_head", to="language_model"),),
    after="load_weights",
    versions=">=0.5.9,<0.5.10",
    below="-",
    upstream="https://github.com/sgl-project/sglang/pull/19689",
)
_SERVER_INFO: dict[str, Any] = {
    "version": "0.5.9",
    "model_path": "/m",
    "dp_size": 2,
    "speculative_algorithm": "EAGLE3",
    "speculative_num_draft_tokens": 4,
    "max_running_requests": 64,
    "internal_states": [{"avg_spec_accept_length": 2.5, "last_gen_throughput": 100.0}],
    "decode": [{"internal_states": [{"effective_max_running_requests_per_dp": 48}]}],
}
_BENCH: dict[str, Any] = {
    "dataset_name": "random",
    "request_rate": 8.0,
    "random_output_len": 1024,
    "random_range_ratio": 0.5,
    "duration": 100.0,
    "num_prompts": 200,
    "completed": 200,
    "failed": 0,
    "total_output_tokens": 60000,
    "total_output_tokens_retokenized": 59900,
    "output_throughput": 600.0,
    "accept_length": 2.8,
    "spec_decode_num_drafts": 100,
    "spec_decode_draft_tokens": 300,
    "spec_decode_accepted_tokens": 180,
    "spec_decode_per_position_acceptance_rates": [0.8, 0.6, 0.4],
}
_DRAFTER: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 7168,
    "num_hidden_layers": 1,
    "vocab_size": 163840,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 262144,
    "rope_scaling": {"factor": 2.0, "rope_type": "yarn"},
    "target_hidden_size": 7168,
    "num_aux_hidden_states": 3,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]},
    "eagle_aux_hidden_state_layer_ids": [1, 29, 57],
    "speculators_config": {"algorithm": "eagle3"},
}
_HEADER: dict[str, Any] = {
    "d2t": {"dtype": "I64", "shape": [2, 1], "data_offsets": [0, 16]},
    "fc.weight": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [16, 24]},
    "__metadata__": {"format": "pt"},
}
_ROW: dict[str, Any] = {
    "id": "a",
    "kind": "maths",
    "sent": 0.0,
    "first": 0.1,
    "last": 0.2,
    "done": 0.3,
    "chunks": [[0.1, 1], [0.2, 3]],
    "ids": [1, 2, 3],
    "error": None,
    "meta": {
        "completion_tokens": 3,
        "prompt_tokens": 5,
        "cached_tokens": 1,
        "spec_verify_ct": 2,
        "spec_accept_token_num": 1,
        "spec_draft_token_num": 6,
        "spec_accept_histogram": [1, 1, 0, 0],
        "num_retractions": 0,
        "finish_reason": {"type": "length", "length": 3},
    },
}
_PLAIN_TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _halves(data: bytes) -> tuple[str, str]:
    """Two texts: what stands before the first zero byte, and what follows it."""
    head, _, tail = data.partition(b"\x00")
    return _text(head), _text(tail)


#: What a field of foreign JSON may hold instead of what it should.
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**63, 10**400, 1e308, -0.5, math.nan, math.inf, "", "x"),
    *("9" * 5000, "\ud800", "NaN", [], [1], [None], ["x", "y"], [[1, 2]], {}, {"a": 1}, [{}]),
)


def _bent(data: bytes, good: dict[str, Any]) -> dict[str, Any]:
    """A good object with fields replaced or left out; the bytes choose which, two an edit."""
    bent = copy.deepcopy(good)
    for at in range(0, min(len(data) - 1, 32), 2):
        places = list(_places(bent))
        if not places:
            break
        holder, key = places[data[at] % len(places)]
        choice = data[at + 1] % (len(_ODD) + 1)
        if choice == len(_ODD):
            del holder[key]
        else:
            holder[key] = copy.deepcopy(_ODD[choice])
    return bent


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    keys: Any = tree if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _places(tree[key])


def _start_log(data: bytes) -> None:
    whole, pieces = StartLog(), StartLog()
    whole.feed(data)
    for at in range(0, len(data), 37):
        pieces.feed(data[at : at + 37])
        pieces.progress()
    one, other = whole.finish(), pieces.finish()
    if one != other:
        raise AssertionError("the facts depend on how the bytes are cut")


def _decode_log(data: bytes) -> None:
    log = DecodeLog()
    log.feed(data)
    summary = log.finish()
    for figure in (summary.accept_len_mean, summary.gen_throughput_mean):
        if figure is not None and not math.isfinite(figure):
            raise AssertionError("a mean is not finite")


def _failures(data: bytes) -> None:
    for line in (False, True):
        match = classify(_text(data), Scene(), line=line)
        if match is not None:
            failure_from(match)


def _nccl(data: bytes) -> None:
    lines = _text(data).splitlines()
    read_nccl_log(lines)
    said = read_said(lines)
    path = reduce_path(said, {}, version="0.5.12", tp=2, row_bytes=8192)
    path.at(8192)


def _server_info(data: bytes) -> None:
    read_server_info(_text(data))
    effective_settings(_text(data))
    read_generation(_text(data))
    text = json.dumps(_bent(data, _SERVER_INFO))
    read_server_info(text)
    effective_settings(text)


def _bench(data: bytes) -> None:
    read_bench(_text(data))
    read_bench(json.dumps(_bent(data, _BENCH)))


def _prometheus(data: bytes) -> None:
    before, after = _halves(data)
    for framework in ("sglang", "vllm"):
        read_metrics(after, framework, before=before)


def _nvidia_smi(data: bytes) -> None:
    gpus, apps = _halves(data)
    survey_gpus(gpus, apps, wanted=8)


def _topology(data: bytes) -> None:
    first, second = _halves(data)
    answers = {
        name: {"stdout": text, "error": None}
        for name, text in (
            ("matrix", first), ("p2p_read", second), ("p2p_write", first),
            ("nvlink", second), ("links", first),
        )
    }  # fmt: skip
    raw = {**answers, "nodes": None, "iommu": [second], "kernel": [first], "devices": []}
    topology_warnings(read_topology(raw))


def _ps(data: bytes) -> None:
    leader = Leader(pid=7000, start="Wed Mar  4 09:12:00 2026", pgid=7000)
    split = split_by_leader(read_ps(_text(data)), leader, user="ana")
    teardown_step(split, leader, gpu_pids=(1, 2))


def _patching(data: bytes) -> None:
    result = apply_patch(data, _PATCH)
    if result.action != "insert" and result.new_source != data:
        raise AssertionError("a file that is left alone has changed")


def _drafter_config(data: bytes) -> None:
    bent = json.dumps(_bent(data, _DRAFTER)).encode()
    for framework, version in (("sglang", "0.5.9"), ("sglang", "0.5.23"), ("vllm", None)):
        for config in (data, bent):
            check_drafter(config, _TARGET, EngineFacts(framework=framework, version=version))


def _safetensors(data: bytes) -> None:
    with contextlib.suppress(NotSafetensorsError):
        read_index(data)
    # Random bytes seldom hold the right length in front: it is written there.
    bent = json.dumps(_bent(data, _HEADER)).encode()
    framed = [len(table).to_bytes(8, "little") + table for table in (data, bent)]
    for header in (data, *framed):
        with contextlib.suppress(NotSafetensorsError):
            for tensor in read_header(header, file_bytes=2 * len(header)).values():
                integers(tensor, header[tensor.start : tensor.end])


def _prompts(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        read_prompts(_text(data), "fuzz")


def _chat_template(data: bytes) -> None:
    """Only the configuration and the messages: a template is a program and may well not end."""
    config, content = _halves(data)
    with contextlib.suppress(ChatTemplateError):
        read_chat_template(config, None)
    with contextlib.suppress(ChatTemplateError):
        render(read_chat_template(None, _PLAIN_TEMPLATE), [{"role": "user", "content": content}])


def _samples(data: bytes) -> None:
    # What the drive job cannot have written is the documented ValueError; but what an engine
    # answers (meta) may hold anything.
    with contextlib.suppress(ValueError):
        read_rows(_text(data).split("\n"), 1.0)
    with contextlib.suppress(ValueError):
        read_rows([json.dumps(_bent(data, _ROW))], 1.0)
    read_rows([json.dumps({**_ROW, "meta": _bent(data, _ROW["meta"])})], 1.0)


def _sweep(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse_sweep(_text(data), "fuzz")


def _answers(data: bytes) -> None:
    # As the load client reads: torn anywhere, after a head that is an answer's or is not.
    at = data[0] * 8 if data else 0
    for head in (b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        for kind in (GenerateStream, CompletionsStream):
            answer, stream = Answer(), kind()
            with contextlib.suppress(Malformed):
                for piece in (head + data[:at], data[at:]):
                    stream.feed(answer.feed(piece), 0.0)
            stream.feed(data, 0.0)
            answer.end()
            stream.finish()


def _mlflow(data: bytes) -> None:
    params, metrics = _halves(data)
    words = params.split("\n")
    values = [(name, _number(name), step) for step, name in enumerate(metrics.split("\n"))]
    fitted = fit(dict.fromkeys(words, params), values, dict.fromkeys(words, metrics))
    names = (*fitted.params, *fitted.tags, *(name for name, _, _ in fitted.metrics))
    if any(not name or len(name) > 250 for name in names):
        raise AssertionError("a name that MLflow does not take")
    if any(len(value) > PARAM_LIMIT for value in fitted.params.values()):
        raise AssertionError("a value that MLflow does not take")


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


class Target(NamedTuple):
    """What is called with the bytes, and which fixtures are a good beginning."""

    call: Callable[[bytes], object]
    seeds: tuple[str, ...] = ()


TARGETS = {
    "start-log": Target(_start_log, ("*cases/*-launch-*/server.log",)),
    "decode-log": Target(_decode_log, ("*cases/*-decode-*/server.log",)),
    "failures": Target(_failures, ("*cases/*-launch-*/server.log",)),
    "nccl": Target(_nccl, ("nccl/*.log", "real/nccl/*.log")),
    "server-info": Target(_server_info, ("*cases/*/server_info.json",)),
    "bench": Target(_bench, ("*cases/*/*.jsonl",)),
    "prometheus": Target(_prometheus, ("*cases/*-prom-*/*.txt",)),
    "nvidia-smi": Target(_nvidia_smi, ("*cases/*-smi-*/*.txt", "*cases/*-smi-*/*.csv")),
    "topology": Target(_topology, ("topology/*/*.txt", "topology/*/*.csv")),
    "ps": Target(_ps, ("*cases/*/ps.txt",)),
    "patching": Target(_patching, ("*cases/*-source-*/*.py",)),
    "drafter-config": Target(_drafter_config, ("*cases/*-drafter-*/config.json",)),
    "safetensors": Target(_safetensors, ("*cases/*-drafter-*/tensors.json",)),
    "prompts": Target(_prompts, ("../../configs/prompts/*.jsonl",)),
    "chat-template": Target(_chat_template, ("*cases/*-drafter-*/config.json",)),
    "samples": Target(_samples, ("real_samples/*",)),
    "answers": Target(_answers),
    "sweep": Target(_sweep, ("../../configs/sweeps/*.yaml", "*cases/*-config-*/*.yaml")),
    "mlflow": Target(_mlflow, ("*cases/*-mlflow-*/metrics.json",)),
}


def _seed(name: str) -> Path:
    """Copy the seeds, long ones cut, and return their folder."""
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in TARGETS[name].seeds:
        for path in sorted(FIXTURES.glob(pattern)):
            data = path.read_bytes()[:16384]
            (folder / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
    return folder


def main(arguments: list[str]) -> None:
    """Run one target until libFuzzer's options end it, or print the names."""
    if not arguments:
        print("\n".join(TARGETS))
        return
    name, *options = arguments
    if name == "--seeds":
        print(json.dumps({each: len(list(_seed(each).iterdir())) for each in TARGETS}))
        return
    call: Any = TARGETS[name].call
    atheris.Setup([sys.argv[0], str(_seed(name)), *options], call)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
