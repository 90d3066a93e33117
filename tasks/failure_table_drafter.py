"""Failures of the pair of target and drafter."""

from __future__ import annotations

from tasks.failure_table_form import FailureClass, seen
from tasks.failure_table_texts import CONTEXT_TOO_LONG, NO_CONFIG, NOT_THERE

_HOOKS = (
    "set_eagle3_layers_to_capture|set_dflash_layers_to_capture"
    "|get_embed_and_head|set_embed_and_head|get_input_embeddings"
)
_ALL_HOOKS = (
    "add all of set_eagle3_layers_to_capture, get_embed_and_head, set_embed_and_head to the class"
)
_DRAFT_ATTRIBUTES = "set_embed|hot_token_id|get_hot_token_id|load_lm_head_from_target"
_EAGLE3_FRAME = r"eagle3?\.py"
_WIDTHS = r"mat1 and mat2 shapes cannot be multiplied \(\d+x(?P<got>\d{1,15}) and (?P<wanted>\d{1,15})x\d+\)"
_TENSORS = r"The size of tensor a \((?P<got>\d{1,15})\) must match the size of tensor b \((?P<wanted>\d{1,15})\)"
_CONTEXT_HINT = (
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 starts it,"
    " but acceptance past {draft_context} tokens falls"
)
_DRAFT_BACKEND = "--speculative-draft-attention-backend trtllm_mha (or flashinfer)"

DRAFTER_FAILURES = (
    FailureClass(
        name="missing_interface",
        cause="The target's model class lacks the methods that EAGLE-3 calls on it.",
        remedy="Patch the class (sglang 0.5.9: all three methods), or take sglang 0.5.10 or newer.",
        who="us",
        retry="after_change",
        citation="sglang#18374, sglang#19689, sglang#23569; vllm#25134, vllm#35966",
        signatures=(
            seen(
                rf"'(?P<target_class>\w+)' object has no attribute '(?P<missing>{_HOOKS})'",
                _ALL_HOOKS,
            ),
            seen(
                rf"Model (?P<target_class>\w+) does not implement (?P<missing>{_HOOKS})", _ALL_HOOKS
            ),
            seen(
                r"does not support (?:the )?EAGLE-?3 interface",
                "take a vLLM release whose model class has SupportsEagle3",
                retry="no",
                who="engine",
            ),
            seen(
                r"Eagle3 is only supported for .{0,200} models",
                "take a vLLM release that lists this model type",
                retry="no",
                who="engine",
            ),
            seen(
                r"language_model does not support EAGLE3 speculative decoding",
                retry="no",
                who="engine",
            ),
        ),
    ),
    FailureClass(
        name="draft_path_missing",
        cause="No drafter was given, or there is none at the path; without one sglang loads the"
        " target as its own drafter.",
        remedy="Give the path of an EAGLE-3 checkpoint that is on the host.",
        who="user",
        retry="after_change",
        citation="sglang#36528, sglang#36593",
        signatures=(
            seen(
                rf"'(?P<draft_class>\w+)' object has no attribute '(?:{_DRAFT_ATTRIBUTES})'",
                "set --speculative-draft-model-path",
                draft_path="absent",
            ),
            seen(
                r"speculative[-_]draft[-_]model[-_]path.{0,80}(?:required|must be|is None)"
                r"|(?:requires?|must).{0,60}speculative[-_]draft[-_]model[-_]path",
                "set --speculative-draft-model-path",
            ),
            seen(NOT_THERE, "put the drafter at {path} on the host", drafter=True),
        ),
    ),
    FailureClass(
        name="draft_arch_mismatch",
        cause="The drafter's config names a model class that is not an EAGLE-3 head.",
        remedy="Use an EAGLE-3 checkpoint, or correct `architectures` in its config.json.",
        who="user",
        retry="after_change",
        citation="sglang#36528, sglang#8229",
        signatures=(
            seen(
                rf"'(?P<draft_class>\w+)' object has no attribute '(?:{_DRAFT_ATTRIBUTES})'",
                "drafter config.json architectures must be LlamaForCausalLMEagle3",
            ),
        ),
    ),
    FailureClass(
        name="draft_config_invalid",
        cause="The drafter's config.json is absent, is not a model's config, or lacks what the engine"
        " reads.",
        remedy="Copy the drafter again with its config.json.",
        who="user",
        retry="after_change",
        citation="sglang 0.5.12 logs: drafters without config, architectures and dtype",
        signatures=(
            seen(NO_CONFIG, "look at {path}/config.json", drafter=True),
            seen(
                r"'\w+Config' object has no attribute '(?P<field>draft_vocab_size)'",
                'add "draft_vocab_size" to the drafter\'s config.json: null or the number',
            ),
            # Of a drafter alone: the target's config was read before any model runner was.
            seen(
                r"'NoneType' object is not subscriptable",
                'add "architectures" to the drafter\'s config.json: ["LlamaForCausalLMEagle3"]',
                frames=r"in _build_model_config\b",
            ),
            seen(
                r"expected mat1 and mat2 to have the same dtype",
                "write the target's \"dtype\" into the drafter's config.json, or pass --dtype",
                frames=_EAGLE3_FRAME,
            ),
        ),
    ),
    FailureClass(
        name="draft_context_too_short",
        cause="The drafter was trained for a shorter context than the target is served with.",
        remedy="Serve with the drafter's context, or allow the overwrite and watch acceptance.",
        who="user",
        retry="after_change",
        citation="sglang#3574, sglang#9388, sglang#18234",
        signatures=(
            seen(
                r"Target model's context_length \((?P<target_context>\d{1,15})\) is greater than"
                r" the derived context_length \((?P<draft_context>\d{1,15})\)",
                _CONTEXT_HINT,
            ),
            seen(CONTEXT_TOO_LONG, _CONTEXT_HINT, drafter=True),
        ),
    ),
    FailureClass(
        name="draft_shape_mismatch",
        cause="The drafter's tensors do not fit: it was made for another hidden size or vocabulary.",
        remedy="Use the drafter that was trained for this target.",
        who="user",
        retry="no",
        citation="sglang#9074, sglang#8229, SafeAILab/EAGLE#294; sglang 0.5.12 log",
        signatures=(
            seen(_WIDTHS, frames=_EAGLE3_FRAME, stages=("draft_graph_capture", "graph_capture")),
            seen(r"Target and draft model should have the same vocabulary size"),
            seen(r"Attempted to load weight \(.{0,80}\) into parameter", drafter=True),
            seen(r"param_data\.shape=.{0,60} loaded_weight\.shape=", drafter=True),
            seen(r"Tried to load weights of size .{0,80} ?to a parameter of size", drafter=True),
            seen(r"^AssertionError", frames=r"vocab_parallel_embedding\.py", drafter=True),
            seen(r"shape of weights is not divisible|size mismatch for", drafter=True),
        ),
    ),
    FailureClass(
        name="aux_width_mismatch",
        cause="The target hands over another width of hidden states than the drafter's first layer"
        " takes: the number of captured layers differs, or one of them does not exist.",
        remedy="Compare `eagle_aux_hidden_state_layer_ids` and fc.weight with the target.",
        who="engine",
        retry="no",
        citation="sglang#32226, sglang#32334; sglang 0.5.12 log, layer id past the end",
        signatures=(
            seen(_TENSORS, frames=_EAGLE3_FRAME),
            seen(_WIDTHS, frames=_EAGLE3_FRAME),
        ),
    ),
    FailureClass(
        name="attention_backend_incompatible",
        cause="The attention backend cannot serve this model, this drafter or this tree width.",
        remedy="Name a backend from the engine's allow-list; the drafter inherits the target's.",
        who="user",
        retry="after_change",
        citation="sglang#23490, sglang#20298; sglang draft_utils.py:96",
        signatures=(
            seen(
                r"(?P<backend>\w+) backend can only be used with (?:non-)?MLA models",
                _DRAFT_BACKEND,
                drafter=True,
            ),
            seen(
                r"(?P<backend>\w+) backend can only be used with (?:non-)?MLA models",
                "set --attention-backend",
            ),
            seen(
                r"EAGLE is not supported in (?:decode )?attention backend (?P<backend>\w+)",
                "--speculative-draft-attention-backend flashinfer (or triton, fa3)",
            ),
            seen(
                r"(?P<backend>\w+) (?:attention )?backend only supports topk ?= ?1",
                "set --speculative-eagle-topk 1",
            ),
            seen(
                r"(?:speculative_eagle_)?topk(?:\(\d+\))? ?> ?1 (?:with|and) page_size(?:\(\d+\))? ?> ?1",
                "set --page-size 1 or --speculative-eagle-topk 1",
            ),
            seen(
                r"[Bb]ackend requires (?:SM|compute capability|Hopper|Blackwell|CUDA)",
                "set --attention-backend",
            ),
            seen(r"No valid attention backend|Selected backend \S{1,80} is not valid for"),
        ),
    ),
)
