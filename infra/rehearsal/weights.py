"""Pretend model folders: real configs, and safetensors files with real headers and hardly a byte."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN = 7168
VOCABULARY = 163_840
DRAFT_VOCABULARY = 32_000
_MIDDLE = 18_432
_BYTES = {"BF16": 2, "I64": 8, "BOOL": 1, "I32": 4}

Tensors = dict[str, tuple[str, list[int]]]

TARGET_CONFIG: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "kimi_k2",
        "hidden_size": HIDDEN,
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 262_144,
        "n_routed_experts": 384,
        "num_experts_per_tok": 8,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    },
    "vision_config": {"model_type": "moonvit3d", "hidden_size": 1152},
    "quantization_config": {"quant_method": "compressed-tensors", "bits": 4},
    "torch_dtype": "bfloat16",
}


def drafter_config(aux_layers: list[int]) -> dict[str, Any]:
    """The ``config.json`` of an EAGLE-3 head of Llama shape for the target above."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "target_hidden_size": HIDDEN,
        "intermediate_size": _MIDDLE,
        "num_hidden_layers": 1,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "head_dim": 128,
        "vocab_size": VOCABULARY,
        "draft_vocab_size": DRAFT_VOCABULARY,
        "max_position_embeddings": 262_144,
        "rms_norm_eps": 1e-05,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": aux_layers,
            "use_aux_hidden_state": True,
        },
    }


def drafter_tensors() -> Tensors:
    """The tensors of such a head."""
    width = 64 * 128
    shapes = {
        "fc.weight": [HIDDEN, 3 * HIDDEN],
        "lm_head.weight": [DRAFT_VOCABULARY, HIDDEN],
        "norm.weight": [HIDDEN],
        "midlayer.hidden_norm.weight": [HIDDEN],
        "midlayer.input_layernorm.weight": [HIDDEN],
        "midlayer.post_attention_layernorm.weight": [HIDDEN],
        "midlayer.self_attn.q_proj.weight": [width, 2 * HIDDEN],
        "midlayer.self_attn.k_proj.weight": [width, 2 * HIDDEN],
        "midlayer.self_attn.v_proj.weight": [width, 2 * HIDDEN],
        "midlayer.self_attn.o_proj.weight": [HIDDEN, width],
        "midlayer.mlp.gate_proj.weight": [_MIDDLE, HIDDEN],
        "midlayer.mlp.up_proj.weight": [_MIDDLE, HIDDEN],
        "midlayer.mlp.down_proj.weight": [HIDDEN, _MIDDLE],
    }
    tensors: Tensors = {name: ("BF16", shape) for name, shape in shapes.items()}
    tensors["d2t"] = ("I64", [DRAFT_VOCABULARY])
    tensors["t2d"] = ("BOOL", [VOCABULARY])
    return tensors


def target_tensors() -> Tensors:
    """A few of the target's tensors: the ends that a drafter shares."""
    return {
        "language_model.model.embed_tokens.weight": ("BF16", [VOCABULARY, HIDDEN]),
        "language_model.model.norm.weight": ("BF16", [HIDDEN]),
        "language_model.lm_head.weight": ("BF16", [VOCABULARY, HIDDEN]),
    }


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """A file with a true header and the right size, whose data is a hole of zeros.

    A ``t2d`` alone has data: it marks the tokens that a ``d2t`` of zeros reaches.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * _BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as stream:
        stream.write(len(head).to_bytes(8, "little") + head)
        stream.truncate(8 + len(head) + at)
        if {"t2d", "d2t"} <= set(tensors):
            stream.seek(8 + len(head) + header["t2d"]["data_offsets"][0])
            stream.write(b"\x01" * tensors["d2t"][1][0])


def write_model(folder: Path, config: dict[str, Any], tensors: Tensors) -> None:
    """One model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_safetensors(folder / "model.safetensors", tensors)
