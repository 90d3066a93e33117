"""Derives broken drafters from a good one, and says what we and the real engine make of each.

    python3 tests/gpu/broken_drafters.py /tmp/m/good /tmp/broken          # writes one folder each
    python3 tests/gpu/broken_drafters.py --table                          # what is expected of each

Standard library alone: it runs on the GPU machine as on a laptop. ``reason`` is what the drafter
check must say before a launch. ``predicted`` is what SGLang 0.5.12.post1 would do if it were
launched all the same, read from its source (llama_eagle3.py, model_config.py, loader.py,
eagle_worker_v2.py) and put right after one H200 had tried them all (docs/evidence/h200/drafters.md);
where a recorded log shows it, ``seen`` names the log under tests/fixtures/real/failures. A run on a
GPU compares; what differs is a fault of ours.
"""

from __future__ import annotations

import json
import math
import shutil
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

IDS = "eagle_aux_hidden_state_layer_ids"
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8, "I32": 4, "BOOL": 1, "U8": 1}

Config = dict[str, Any]


class Tensor(NamedTuple):
    """One tensor with its bytes."""

    dtype: str
    shape: list[int]
    data: bytes


Tensors = dict[str, Tensor]


class Break(NamedTuple):
    """One way to break a drafter."""

    name: str
    reason: str | None
    """What the check says: the reason of its refusal; None: it starts, with a finding."""
    finding: str
    """A piece of the finding, where it is none to refuse; else empty."""
    predicted: str
    """What the engine does with it."""
    outcome: str
    """In one word: dies_loading, dies_capturing, dies_drafting, accepts_nothing, accepts_less,
    works."""
    change: Callable[[Config, Tensors], None]
    seen: str = ""


def read(folder: Path) -> tuple[Config, Tensors]:
    """A drafter in one safetensors file."""
    raw = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    body = raw[8 + length :]
    tensors = {
        name: Tensor(entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }
    return json.loads((folder / "config.json").read_text()), tensors


def write(folder: Path, config: Config, tensors: Tensors) -> None:
    """The same the other way round; a config or weights of nothing leave no file."""
    folder.mkdir(parents=True, exist_ok=True)
    if config:
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    if not tensors:
        return
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        size = len(tensor.data)
        header[name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [at, at + size],
        }
        at += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    whole = struct.pack("<Q", len(head)) + head + b"".join(t.data for t in tensors.values())
    (folder / "model.safetensors").write_bytes(whole)


def good(
    hidden: int = 64, vocab: int = 512, draft_vocab: int = 384, layers: int = 24
) -> tuple[Config, Tensors]:
    """A small drafter of the shape that a good one has; its numbers are zeros."""
    config: Config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": hidden // 4,
        "vocab_size": vocab,
        "draft_vocab_size": draft_vocab,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eagle_config": {IDS: [1, layers // 2 - 1, layers - 4], "use_aux_hidden_state": True},
    }
    shapes = {
        "fc.weight": [hidden, 3 * hidden],
        "lm_head.weight": [draft_vocab, hidden],
        "norm.weight": [hidden],
        "midlayer.hidden_norm.weight": [hidden],
        "midlayer.input_layernorm.weight": [hidden],
        "midlayer.post_attention_layernorm.weight": [hidden],
        "midlayer.self_attn.q_proj.weight": [hidden, 2 * hidden],
        "midlayer.self_attn.k_proj.weight": [hidden, 2 * hidden],
        "midlayer.self_attn.v_proj.weight": [hidden, 2 * hidden],
        "midlayer.self_attn.o_proj.weight": [hidden, hidden],
        "midlayer.mlp.gate_proj.weight": [3 * hidden, hidden],
        "midlayer.mlp.up_proj.weight": [3 * hidden, hidden],
        "midlayer.mlp.down_proj.weight": [hidden, 3 * hidden],
    }
    tensors = {
        name: Tensor("BF16", shape, bytes(2 * math.prod(shape))) for name, shape in shapes.items()
    }
    # Every fourth target token is unknown to the drafter.
    known = [token for token in range(vocab) if token % 4 != 3][:draft_vocab]
    tensors["d2t"] = _whole([token - index for index, token in enumerate(known)])
    marked = set(known)
    tensors["t2d"] = Tensor("BOOL", [vocab], bytes(token in marked for token in range(vocab)))
    return config, tensors


def target_config(config: Config, layers: int = 24) -> Config:
    """The config of a target that a drafter of this config fits."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": config["hidden_size"],
        "num_hidden_layers": layers,
        "vocab_size": config["vocab_size"],
        "max_position_embeddings": config["max_position_embeddings"],
        "torch_dtype": "bfloat16",
    }


def _whole(numbers: list[int]) -> Tensor:
    return Tensor("I64", [len(numbers)], struct.pack(f"<{len(numbers)}q", *numbers))


def _numbers(tensor: Tensor) -> list[int]:
    return list(struct.unpack(f"<{tensor.shape[0]}q", tensor.data))


def _cut(tensor: Tensor, columns: int) -> Tensor:
    """The first columns of a matrix."""
    rows, wide = tensor.shape
    width = _BYTES[tensor.dtype]
    data = b"".join(
        tensor.data[row * wide * width : (row * wide + columns) * width] for row in range(rows)
    )
    return Tensor(tensor.dtype, [rows, columns], data)


def _top(tensor: Tensor, rows: int) -> Tensor:
    """The first rows of a matrix, or the first numbers of a vector."""
    row = len(tensor.data) // tensor.shape[0]
    return Tensor(tensor.dtype, [rows, *tensor.shape[1:]], tensor.data[: rows * row])


def _set(**values: Any) -> Callable[[Config, Tensors], None]:
    """Changes keys of the config; None takes one away."""

    def change(config: Config, _tensors: Tensors) -> None:
        for key, value in values.items():
            config.pop(key, None)
            if value is not None:
                config[key] = value

    return change


def _without(*names: str) -> Callable[[Config, Tensors], None]:
    def change(_config: Config, tensors: Tensors) -> None:
        for name in names:
            tensors.pop(name, None)

    return change


def _narrow_by_config(config: Config, _tensors: Tensors) -> None:
    config["hidden_size"] //= 2


def _narrow(config: Config, tensors: Tensors) -> None:
    """A drafter that was made for a target of half the width, its pieces in accord."""
    old = config["hidden_size"]
    heads = config["num_attention_heads"]
    config["head_dim"] = tensors["midlayer.self_attn.q_proj.weight"].shape[0] // heads
    config["hidden_size"] = old // 2
    for name, tensor in tensors.items():
        if name in {"d2t", "t2d"}:
            continue
        halved = tensor
        if len(tensor.shape) > 1 and tensor.shape[1] % old == 0 and "down_proj" not in name:
            halved = _cut(halved, tensor.shape[1] // 2) if "o_proj" not in name else halved
        if len(tensor.shape) == 1 or any(part in name for part in ("fc.", "o_proj", "down_proj")):
            halved = _top(halved, old // 2)
        tensors[name] = halved


def _two_layers_wide(config: Config, tensors: Tensors) -> None:
    tensors["fc.weight"] = _cut(tensors["fc.weight"], 2 * config["hidden_size"])


def _two_ids(config: Config, _tensors: Tensors) -> None:
    config["eagle_config"] = {**config["eagle_config"], IDS: config["eagle_config"][IDS][:2]}


def _ids_past_the_end(config: Config, _tensors: Tensors) -> None:
    ids = [*config["eagle_config"][IDS][:2], 9999]
    config["eagle_config"] = {**config["eagle_config"], IDS: ids}


def _ids_at_the_top(config: Config, _tensors: Tensors) -> None:
    config[IDS] = [layer + 3 for layer in config.pop("eagle_config")[IDS]]


def _vocabulary(config: Config, _tensors: Tensors) -> None:
    config["vocab_size"] += 64


def _smaller_head(config: Config, _tensors: Tensors) -> None:
    config["draft_vocab_size"] //= 2


def _absolute_ids(_config: Config, tensors: Tensors) -> None:
    offsets = _numbers(tensors["d2t"])
    tensors["d2t"] = _whole([index + offset for index, offset in enumerate(offsets)])


def _other_t2d(_config: Config, tensors: Tensors) -> None:
    old = tensors["t2d"]
    tensors["t2d"] = old._replace(data=old.data[::-1])


def _short(config: Config, _tensors: Tensors) -> None:
    config["max_position_embeddings"] = 512


def _eagle1_weights(config: Config, tensors: Tensors) -> None:
    for name in ("q_proj", "k_proj", "v_proj"):
        key = f"midlayer.self_attn.{name}.weight"
        tensors[key] = _cut(tensors[key], config["hidden_size"])


def _speculators(config: Config, _tensors: Tensors) -> None:
    inner = dict(config)
    config.clear()
    config.update(
        speculators_model_type="eagle3",
        architectures=["Eagle3Speculator"],
        draft_vocab_size=inner["draft_vocab_size"],
        transformer_layer_config=inner,
    )


def _full_vocabulary_without_head(config: Config, tensors: Tensors) -> None:
    config["draft_vocab_size"] = config["vocab_size"]
    _without("lm_head.weight", "d2t", "t2d")(config, tensors)


def _nothing(_config: Config, tensors: Tensors) -> None:
    tensors.clear()


def _empty_config(config: Config, _tensors: Tensors) -> None:
    config.clear()


_STARTS = "starts and answers; parameters without weights stay random, so accept length is 1.0"

BREAKS = (
    Break(
        "wrong-width", "hidden_size_mismatch", "",
        "loads; the draft's graph capture multiplies the target's hidden states with an fc of "
        "half their width: Capture cuda graph failed: mat1 and mat2 shapes", "dies_capturing",
        _narrow, seen="drafter-hidden-size-mismatch",
    ),
    Break(
        "wrong-width-in-config", "hidden_size_mismatch", "",
        "config says half the width: loading fails on the first matrix that does not fit "
        "(default_weight_loader asserts sizes)", "dies_loading", _narrow_by_config,
    ),
    Break(
        "fc-for-two-layers", "aux_width_mismatch", "",
        "fc is built for 3 hidden states, the checkpoint's is for 2: Attempted to load weight",
        "dies_loading", _two_layers_wide,
    ),
    Break(
        "two-layer-ids", "aux_width_mismatch", "",
        "fc is built for 2 hidden states (0.5.12 counts the ids): Attempted to load weight",
        "dies_loading", _two_ids, seen="drafter-two-layer-ids",
    ),
    Break("missing-head", "lm_head_missing_in_weights", "", _STARTS, "accepts_nothing",
          _without("lm_head.weight")),
    Break("full-vocabulary-without-head", "lm_head_missing_in_weights", "", _STARTS,
          "accepts_nothing", _full_vocabulary_without_head),
    Break(
        "missing-fc", "fc_missing_in_weights", "",
        "starts and answers; a random fc hands on noise, but the drafter still sees the last token: "
        "accept length far below the good one's, and above 1", "accepts_less",
        _without("fc.weight"), seen="drafter-missing-tensor",
    ),
    Break(
        "missing-aux-layers", None, "default layers will be used",
        "starts; the default layers 2, n/2, n-3 are captured, which are these drafters' own or "
        "near them: accept length as good, or lower", "accepts_less", _set(eagle_config=None),
    ),
    Break(
        "aux-layers-at-the-top", "layer_ids_not_read", "",
        "starts; the ids are not read and the default layers captured", "accepts_less",
        _ids_at_the_top,
    ),
    Break(
        "aux-layer-past-the-end", "layer_id_out_of_range", "",
        "starts; the first prefill has 2 hidden states for an fc of 3 and dies on shapes",
        "dies_drafting", _ids_past_the_end, seen="drafter-aux-layer-out-of-range",
    ),
    Break(
        "wrong-vocabulary", "vocab_size_mismatch", "",
        "starts and works as well as the good one: the embedding is replaced by the target's "
        "(set_embed), and nothing else depends on vocab_size", "works", _vocabulary,
    ),
    Break(
        "smaller-draft-vocabulary", "draft_vocab_size_mismatch", "",
        "the head has more rows than draft_vocab_size: the vocabulary-parallel loader asserts",
        "dies_loading", _smaller_head, seen="drafter-smaller-draft-vocabulary",
    ),
    Break(
        "missing-d2t", "d2t_missing_in_weights", "",
        "starts; draft ids are taken for target ids: accept length not far above 1, from the tokens "
        "that happen to have one id in both", "accepts_less", _without("d2t"),
    ),
    Break(
        "absolute-d2t", "d2t_out_of_range", "",
        "starts; ids past the vocabulary index the embedding out of bounds: a device-side assert "
        "as soon as such an id is drafted (after it was ready, 40 steps into the first request)",
        "dies_drafting", _absolute_ids, seen="drafter-absolute-d2t",
    ),
    Break(
        "t2d-of-another", None, "of two checkpoints",
        "starts and works: t2d is not read", "works", _other_t2d,
    ),
    Break(
        "short-context", "draft_context_too_short", "",
        "with --context-length or without, the target's context is asked of the drafter too: "
        "Target model's context_length is greater than the derived context_length",
        "dies_loading", _short, seen="drafter-short-context",
    ),
    Break(
        "eagle1-weights", "attention_width_mismatch", "",
        "the input layer's q, k, v take 2 x hidden: the qkv loader fails on the narrower ones",
        "dies_loading", _eagle1_weights, seen="drafter-eagle1-weights",
    ),
    Break(
        "eagle1-architecture", "arch_not_eagle3", "",
        "LlamaForCausalLMEagle is built, whose fc joins two states of the width: Attempted to load "
        "weight", "dies_loading",
        _set(architectures=["LlamaForCausalLMEagle"]),
    ),
    Break(
        "no-architecture", "arch_missing", "",
        "config without architectures: 'NoneType' object is not subscriptable while it is read",
        "dies_loading", _set(architectures=None), seen="drafter-no-architecture",
    ),
    Break(
        "speculators-format", "speculators_format", "",
        "no model_type at the top level: Unrecognized model", "dies_loading", _speculators,
    ),
    Break(
        "no-draft-vocabulary-key", "draft_vocab_size_missing", "",
        "'LlamaConfig' object has no attribute 'draft_vocab_size'", "dies_loading",
        _set(draft_vocab_size=None),
    ),
    Break(
        "no-dtype", "dtype_mismatch", "",
        "float16 weights, hidden states of another type: expected mat1 and mat2 to have the same "
        "dtype, while the draft's graph is captured", "dies_capturing",
        _set(torch_dtype=None, dtype=None), seen="drafter-no-dtype",
    ),
    Break(
        "no-weights", "weights_missing", "",
        "RuntimeError: Cannot find any model weights", "dies_loading", _nothing,
    ),
    Break(
        "no-config", "config_missing", "", "ValueError: Unrecognized model", "dies_loading",
        _empty_config, seen="drafter-no-config",
    ),
)  # fmt: skip
"""All of them. A drafter that is cut off is made by :func:`cut_off`."""

CUT_OFF = "cut-off"


def derive(config: Config, tensors: Tensors, out: Path) -> list[str]:
    """Writes every broken drafter into a folder of its own; returns their names."""
    names = []
    for one in BREAKS:
        broken, pieces = json.loads(json.dumps(config)), dict(tensors)
        one.change(broken, pieces)
        write(out / one.name, broken, pieces)
        names.append(one.name)
    write(out / CUT_OFF, config, tensors)
    file = out / CUT_OFF / "model.safetensors"
    file.write_bytes(file.read_bytes()[: -len(tensors["lm_head.weight"].data) // 2])
    return [*names, CUT_OFF]


def table() -> str:
    """What is expected of each, as Markdown."""
    rows = [
        "| drafter | the check says | predicted: SGLang 0.5.12 | in a word | recorded |",
        "| --- | --- | --- | --- | --- |",
    ]
    rows += [
        f"| {one.name} | {one.reason or 'finding: ' + one.finding} | {one.predicted} "
        f"| {one.outcome} | {one.seen} |"
        for one in BREAKS
    ]
    rows.append(
        f"| {CUT_OFF} | weights_unreadable | SafetensorError: incomplete metadata | dies_loading "
        "| drafter-truncated-safetensors |"
    )
    return "\n".join(rows)


def main(arguments: list[str]) -> int:
    """As the head comment says."""
    if arguments == ["--table"]:
        print(table())
        return 0
    if len(arguments) != 2:
        print(__doc__)
        return 2
    source, out = map(Path, arguments)
    shutil.rmtree(out, ignore_errors=True)
    for name in derive(*read(source), out):
        print(out / name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
