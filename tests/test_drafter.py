"""The drafter check: what would fail after minutes of loading, or silently accept nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.drafter import check_drafter
from tasks.drafter_config import read_target
from tasks.drafter_verdict import EngineFacts, TargetFacts
from tasks.safetensors_header import Tensor

IDS = "eagle_aux_hidden_state_layer_ids"
KIMI = TargetFacts(
    hidden_size=7168,
    vocab_size=163840,
    layers=61,
    context=262144,
    architecture="KimiK25ForConditionalGeneration",
)
LLAMA = KIMI.model_copy(update={"architecture": "LlamaForCausalLM"})
GPT_OSS = TargetFacts(
    hidden_size=2880, vocab_size=201088, layers=36, architecture="GptOssForCausalLM"
)
GOOD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 7168,
    "num_hidden_layers": 1,
    "vocab_size": 163840,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
    "eagle_config": {IDS: [1, 29, 57], "use_aux_hidden_state": True},
}
MLA = {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "model_type": "kimi_k2"}
WEIGHTS = {
    "fc.weight": Tensor("BF16", (7168, 21504)),
    "midlayer.self_attn.q_proj.weight": Tensor("BF16", (8192, 14336)),
    "lm_head.weight": Tensor("BF16", (32000, 7168)),
    "d2t": Tensor("I64", (32000,)),
    "t2d": Tensor("BOOL", (163840,)),
}
DROP = object()


def sglang(version: str | None = "0.5.9", **rest: Any) -> EngineFacts:
    return EngineFacts(framework="sglang", version=version, **rest)


def without_dropped(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not DROP}


def check(
    change: dict[str, Any] | None = None,
    engine: EngineFacts | str = "0.5.9",
    target: TargetFacts = KIMI,
    weights: dict[str, Any] | None = None,
    d2t: list[Any] | None = None,
):
    config = json.dumps(without_dropped(GOOD | (change or {}))).encode()
    engine = sglang(engine) if isinstance(engine, str) else engine
    headers = None if weights is None else without_dropped(WEIGHTS | weights)
    return check_drafter(config, target, engine, headers, d2t)


def ids(*layers: Any) -> dict[str, Any]:
    return {"eagle_config": {IDS: list(layers)}}


def test_a_good_drafter_passes_without_a_word():
    verdict = check(weights={})
    assert verdict.ok
    assert verdict.reason is None
    assert verdict.warnings == ()
    assert (verdict.num_aux, verdict.num_aux_by_weights) == (3, 3)
    assert verdict.ok_for == ("sglang",)
    assert len(verdict.config_sha256 or "") == len(verdict.weights_sha256 or "") == 64


@pytest.mark.parametrize(
    ("layers", "version", "target", "captured"),
    [
        ((1, 29, 57), "0.5.9", KIMI, (2, 30, 58)),
        ((1, 29, 57), "0.5.23", KIMI, (2, 30, 58)),
        ((2, 30, 58), "0.5.12", KIMI, (3, 31, 59)),
        ((2, 30, 58), "0.5.13", KIMI, (2, 30, 58)),
        ((2, 30, 58), None, KIMI, (2, 30, 58)),
        ((2, 30, 58), "main", KIMI, (2, 30, 58)),
        ((2, 30, 58), "0.5.23", LLAMA, (3, 31, 59)),
        ((24, 30, 36), "0.5.15", GPT_OSS, (25, 31, 37)),
        ((24, 30, 36), "0.5.18", GPT_OSS, (24, 30, 36)),
        ((24, 30, 35), "0.5.18", GPT_OSS, (25, 31, 36)),
    ],
)
def test_the_layers_really_captured_follow_the_rule_of_release_and_target(
    layers, version, target, captured
):
    sizes = {"hidden_size": target.hidden_size, "vocab_size": target.vocab_size}
    assert check(ids(*layers) | sizes, sglang(version), target).capture_layers == captured


def test_a_shift_that_an_old_release_makes_is_a_warning():
    assert any("+1" in text for text in check(ids(2, 30, 58), "0.5.12").warnings)
    assert check(ids(2, 30, 58), "0.5.13").warnings == ()


def test_graphs_of_0_5_9_and_0_5_10_ignore_the_layer_ids():
    assert any("CUDA graphs" in text for text in check(ids(1, 20, 40), "0.5.10.post1").warnings)
    assert check(ids(1, 20, 40), "0.5.11").warnings == ()


def test_a_layer_behind_the_last_one_is_a_warning():
    assert any("final output" in text for text in check(ids(1, 30, 61), "0.5.13").warnings)
    assert any("shifted to 61" in text for text in check(ids(1, 30, 60), "0.5.13").warnings)


def test_without_ids_the_default_layers_are_named():
    for eagle_config in ({}, DROP, {IDS: None}):
        verdict = check({"eagle_config": eagle_config})
        assert verdict.ok
        assert verdict.capture_layers == (2, 30, 58)
        assert any("default layers" in text for text in verdict.warnings)


def test_ids_at_the_top_level_are_read_by_vllm_only():
    change = {"eagle_config": DROP, IDS: [4, 20, 40, 56]}
    assert check(change).reason == "layer_ids_not_read"
    verdict = check(change, EngineFacts(framework="vllm", version="0.33.0"))
    assert verdict.ok
    assert verdict.capture_layers == (4, 20, 40, 56)
    same = check({"eagle_config": DROP, IDS: [2, 30, 58]})
    assert same.ok
    assert any("not read" in text for text in same.warnings)


def test_a_drafter_of_the_last_layer_only_needs_no_ids():
    off: dict[str, Any] = {"use_aux_hidden_state": False}
    for eagle_config in (off, off | {IDS: []}):
        verdict = check({"eagle_config": eagle_config})
        assert verdict.ok
        assert (verdict.num_aux, verdict.capture_layers) == (0, ())


def test_four_layers_need_0_5_12():
    four = {"fc.weight": Tensor("BF16", (7168, 4 * 7168))}
    assert check(ids(1, 20, 40, 57), "0.5.12", weights=four).ok
    assert check(ids(1, 20, 40, 57), "0.5.11", weights=four).reason == "aux_count_unsupported"
    verdict = check(weights=four)
    assert verdict.reason == "aux_width_mismatch"
    assert (verdict.num_aux_by_config, verdict.num_aux_by_weights) == (3, 4)


def test_a_narrow_drafter_says_how_wide_the_target_is():
    narrow = {"hidden_size": 4096, "target_hidden_size": 7168}
    weights = {
        "fc.weight": Tensor("BF16", (4096, 21504)),
        "midlayer.self_attn.q_proj.weight": Tensor("BF16", (8192, 8192)),
        "embed_tokens.weight": Tensor("BF16", (163840, 4096)),
    }
    assert check(narrow, weights=weights).ok
    verdict = check({"hidden_size": 4096})
    assert verdict.reason == "hidden_size_mismatch"
    assert (verdict.problems[0].draft, verdict.problems[0].target) == (4096, 7168)
    weights["embed_tokens.weight"] = DROP  # type: ignore[assignment]
    assert check(narrow, weights=weights).reason == "embed_tokens_missing_in_weights"
    assert check(narrow | {"draft_vocab_size": None}).reason == "lm_head_not_shareable"


@pytest.mark.parametrize(
    ("change", "version", "reason"),
    [
        ({"architectures": DROP}, "0.5.9", "arch_missing"),
        ({"architectures": []}, "0.5.9", "arch_missing"),
        ({"architectures": "LlamaForCausalLMEagle3"}, "0.5.9", "arch_missing"),
        ({"architectures": ["LlamaForCausalLM"]}, "0.5.9", "arch_not_eagle3"),
        ({"architectures": ["Eagle3LlamaForCausalLM"]}, "0.5.23", "arch_unsupported"),
        (MLA, "0.5.11", "arch_unsupported"),
        (MLA | {"num_hidden_layers": 2}, "0.5.23", "draft_layers_unsupported"),
        ({"model_type": DROP}, "0.5.9", "model_type_missing"),
        ({"hidden_size": "7168"}, "0.5.9", "wrong_type"),
        ({"num_hidden_layers": 1.0}, "0.5.9", "wrong_type"),
        ({"vocab_size": True}, "0.5.9", "wrong_type"),
        ({"num_hidden_layers": 2}, "0.5.11", "draft_layers_unsupported"),
        ({"eagle_config": []}, "0.5.9", "eagle_config_not_object"),
        ({"eagle_config": None}, "0.5.13", "eagle_config_not_object"),
        (ids(), "0.5.23", "layer_ids_empty"),
        ({"eagle_config": {IDS: "1,29,57"}}, "0.5.9", "layer_ids_not_integers"),
        (ids(1.0, 29.0, 57.0), "0.5.9", "layer_ids_not_integers"),
        (ids(True, 29, 57), "0.5.9", "layer_ids_not_integers"),
        (ids(1, 29, 29), "0.5.9", "layer_ids_repeated"),
        (ids(1, 29, 62), "0.5.9", "layer_id_out_of_range"),
        (ids(-1, 29, 57), "0.5.9", "layer_id_out_of_range"),
        ({"num_aux_hidden_states": 4}, "0.5.12", "aux_width_mismatch"),
        ({"target_hidden_size": 4096}, "0.5.9", "hidden_size_mismatch"),
        ({"vocab_size": 163841}, "0.5.9", "vocab_size_mismatch"),
        ({"vocab_size": DROP}, "0.5.9", "vocab_size_mismatch"),
        ({"draft_vocab_size": DROP}, "0.5.23", "draft_vocab_size_missing"),
        ({"draft_vocab_size": 200000}, "0.5.9", "draft_vocab_size_invalid"),
        ({"draft_vocab_size": "32000"}, "0.5.9", "draft_vocab_size_invalid"),
        ({"draft_vocab_size": 0}, "0.5.9", "draft_vocab_size_invalid"),
        ({"max_position_embeddings": 4096}, "0.5.9", "draft_context_too_short"),
        ({"max_position_embeddings": DROP}, "0.5.9", "draft_context_too_short"),
        ({"hidden_size": 10**400}, "0.5.9", "wrong_type"),
    ],
)
def test_what_will_not_work_is_named(change, version, reason):
    verdict = check(change, version)
    assert not verdict.ok
    assert verdict.reason == reason
    assert verdict.also == ()
    assert verdict.ok_for == ()
    assert verdict.problems[0].message


@pytest.mark.parametrize(
    ("change", "version"),
    [
        (MLA, "0.5.12"),
        (MLA | {"draft_vocab_size": DROP}, "0.5.12"),
        ({"num_hidden_layers": 2}, "0.5.12"),
        ({"draft_vocab_size": None}, "0.5.9"),
        ({"eagle_config": None}, "0.5.23"),
        ({"draft_vocab_size": 163840}, "0.5.9"),
        (
            {"max_position_embeddings": 8192, "rope_scaling": {"type": "yarn", "factor": 32}},
            "0.5.9",
        ),
        (ids(1, 57, 29), "0.5.12"),
    ],
)
def test_what_works_is_not_refused(change, version):
    verdict = check(change, version)
    assert verdict.ok, verdict.problems


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ({"fc.weight": DROP}, "fc_missing_in_weights"),
        ({"fc.weight": Tensor("BF16", (7168, 14336))}, "aux_width_mismatch"),
        ({"fc.weight": Tensor("BF16", (7168, 20000))}, "aux_width_mismatch"),
        ({"fc.weight": Tensor("BF16", (4096, 21504))}, "hidden_size_mismatch"),
        ({"midlayer.self_attn.q_proj.weight": DROP}, "decoder_layer_missing_in_weights"),
        (
            {
                "midlayer.self_attn.q_proj.weight": DROP,
                "layers.0.self_attn.q_proj.weight": Tensor("BF16", (8192, 14336)),
            },
            "weight_names_not_read",
        ),
        (
            {"midlayer.self_attn.q_proj.weight": Tensor("BF16", (8192, 7168))},
            "attention_width_mismatch",
        ),
        ({"lm_head.weight": DROP}, "lm_head_missing_in_weights"),
        ({"lm_head.weight": Tensor("BF16", (64000, 7168))}, "draft_vocab_size_mismatch"),
        ({"d2t": DROP}, "d2t_missing_in_weights"),
        ({"d2t": Tensor("I64", (64000,))}, "d2t_length_mismatch"),
    ],
)
def test_weights_that_do_not_fit_the_config_are_named(weights, reason):
    verdict = check(weights=weights)
    assert verdict.reason == reason
    assert verdict.also == ()


def test_newer_releases_read_both_spellings_of_the_decoder_layer():
    weights = {
        "midlayer.self_attn.q_proj.weight": DROP,
        "model.layers.0.self_attn.q_proj.weight": Tensor("BF16", (8192, 14336)),
    }
    assert check(engine="0.5.12", weights=weights).ok


def test_a_head_of_the_target_needs_no_head_of_its_own():
    bare = {"lm_head.weight": DROP, "d2t": DROP, "t2d": DROP}
    assert check({"draft_vocab_size": None}, weights=bare).ok
    assert check({"draft_vocab_size": 163840, "tie_word_embeddings": True}, weights=bare).ok
    verdict = check({"draft_vocab_size": 163840}, weights=bare)
    assert verdict.reason == "lm_head_missing_in_weights"
    assert "null" in (verdict.remedy or "")


def small(d2t, vocab: int = 100):
    target = KIMI.model_copy(update={"vocab_size": vocab})
    change = {"vocab_size": vocab, "draft_vocab_size": len(d2t)}
    return check(change, target=target, d2t=d2t)


def test_d2t_holds_offsets_inside_the_target_vocabulary():
    assert small([0, 0, 3, 10, 40, 94]).ok
    verdict = small([0, 0, 3, 10, 40, 98])
    assert (verdict.reason, verdict.bad_index) == ("d2t_out_of_range", 5)
    assert small([0, -2, 0]).bad_index == 1
    assert "absolute" in (small([0, 5, 9, 97]).remedy or "")
    assert small([0, 1.5, "x"]).reason == "d2t_not_integers"
    assert any("several" in text for text in small([1, 0, 0]).warnings)
    assert check(d2t=[0, 1]).reason == "d2t_length_mismatch"


def test_the_context_that_counts_is_the_one_asked_for():
    short = {"max_position_embeddings": 4096}
    verdict = check(short)
    assert (verdict.draft_context, verdict.target_context) == (4096, 262144)
    assert check(short, sglang(context_length=4096)).ok
    assert check(short, sglang(context_length=4097)).reason == "draft_context_too_short"
    allowed = check(short, sglang(allow_longer_context=True))
    assert allowed.ok
    assert any("4096" in text for text in allowed.warnings)
    assert check(short, EngineFacts(framework="vllm")).ok


def test_an_algorithm_that_does_not_fit_the_drafter_is_named():
    for algorithm in ("EAGLE", "NEXTN", "STANDALONE", "eagle"):
        engine = sglang(speculative_algorithm=algorithm)
        assert check(engine=engine).reason == "algorithm_mismatch"
    assert check(engine=sglang(speculative_algorithm="eagle3")).ok
    older = {"architectures": ["LlamaForCausalLMEagle"], "draft_vocab_size": DROP}
    assert check(older, sglang(speculative_algorithm="EAGLE")).ok
    assert "EAGLE/EAGLE-2" in (check(older).remedy or "")


def test_a_language_model_as_drafter_may_be_of_any_size():
    small = {"architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 16}
    bare = dict.fromkeys(WEIGHTS, DROP)
    change = small | {"draft_vocab_size": DROP, "eagle_config": DROP}
    alone = sglang(speculative_algorithm="STANDALONE")
    assert check(change, alone, weights=bare).ok
    other = check(change | {"vocab_size": 151936}, alone, weights=bare)
    assert other.ok
    assert any("one tokenizer" in text for text in other.warnings)
    assert check(change | {"max_position_embeddings": 2048}, alone).reason == (
        "draft_context_too_short"
    )


def test_a_prediction_layer_of_the_target_has_the_targets_config():
    change: dict[str, Any] = {"architectures": ["DeepseekV3ForCausalLM"]}
    change["model_type"] = "deepseek_v3"
    change |= {"num_hidden_layers": 61, "draft_vocab_size": DROP, "eagle_config": DROP}
    assert check(change, sglang(speculative_algorithm="NEXTN")).ok


def test_the_speculators_layout_is_for_vllm():
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 32000,
        IDS: [2, 30, 58],
        "transformer_layer_config": {
            "model_type": "llama",
            "hidden_size": 7168,
            "vocab_size": 163840,
            "num_hidden_layers": 1,
            "max_position_embeddings": 262144,
        },
    }
    data = json.dumps(config).encode()
    refused = check_drafter(data, KIMI, sglang("0.5.23"))
    assert (refused.reason, refused.ok_for) == ("speculators_format", ("vllm",))
    taken = check_drafter(data, KIMI, EngineFacts(framework="vllm"))
    assert taken.ok
    assert taken.capture_layers == (2, 30, 58)


def test_vllm_takes_a_plain_llama_for_a_drafter_when_the_method_says_so():
    plain = {"architectures": ["LlamaForCausalLM"], IDS: [2, 30, 58]}
    assert check(plain, EngineFacts(framework="vllm")).ok


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "config_missing"),
        (b"", "not_json"),
        (b"<html>404</html>", "not_json"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not_json"),
        (b'{"a": 1,}', "not_json"),
        (b"[" * 100000, "not_json"),
        (b"[1]", "not_an_object"),
        (b"null", "not_an_object"),
        (json.dumps(GOOD).encode("utf-16"), "not_utf8"),
        (b'{"a": "\xe9"}', "not_utf8"),
    ],
)
def test_a_file_that_is_no_config_is_said_to_be_none(data, reason):
    verdict = check_drafter(data, KIMI, sglang())
    assert verdict.reason == reason
    assert verdict.capture_layers is None


def test_oddities_of_the_file_are_warnings():
    text = json.dumps(GOOD)
    with_bom = check_drafter(b"\xef\xbb\xbf" + text.encode(), KIMI, sglang())
    assert with_bom.ok
    assert "byte order mark" in with_bom.warnings[0]
    twice = text.replace('"vocab_size"', '"vocab_size": 1, "vocab_size"', 1)
    assert any("twice" in text for text in check_drafter(twice.encode(), KIMI, sglang()).warnings)
    assert any("float32" in text for text in check({"torch_dtype": "float32"}).warnings)


def test_every_problem_is_reported_at_once():
    verdict = check(
        {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 61, "vocab_size": 32000},
    )
    assert verdict.reason == "arch_not_eagle3"
    assert set(verdict.also) == {"draft_layers_unsupported", "vocab_size_mismatch"}
    assert len(verdict.hints) == len(verdict.problems) == 3


def test_nothing_is_asserted_about_a_target_that_is_not_known():
    verdict = check(target=TargetFacts(), weights={})
    assert verdict.ok
    assert check({"eagle_config": {}}, target=TargetFacts()).capture_layers is None


def test_a_multimodal_target_is_read_through_its_text_config():
    text: dict[str, Any] = {"hidden_size": 7168, "vocab_size": 163840, "num_hidden_layers": 61}
    text |= {"max_position_embeddings": 4096, "rope_scaling": {"type": "yarn", "factor": 64.0}}
    data = json.dumps({"architectures": [KIMI.architecture], "text_config": text}).encode()
    assert read_target(data) == KIMI
    text["rope_scaling"] = {"factor": 64.0, "original_max_position_embeddings": 4096}
    assert read_target(json.dumps(text).encode()).context == 4096
    for bad in (b"[]", b"{", b"\xff"):
        with pytest.raises(ValueError):
            read_target(bad)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    change=st.dictionaries(
        st.sampled_from([*GOOD, IDS, "target_hidden_size", "num_aux_hidden_states", "rope_scaling",
                         "speculators_config", "transformer_layer_config", "tie_word_embeddings"]),
        JSON | st.just({IDS: [3]}) | JSON.map(lambda value: {IDS: value}),
        max_size=4,
    ),
    framework=st.sampled_from(["sglang", "vllm"]),
    version=st.sampled_from(["0.5.9", "0.5.23", None]),
)  # fmt: skip
def test_no_config_makes_the_check_itself_fail(change, framework, version):
    engine = EngineFacts(framework=framework, version=version)
    verdict = check(change, engine, weights={}, d2t=[1, 2])
    assert verdict.ok is not bool(verdict.problems)
    assert type(verdict).model_validate_json(verdict.model_dump_json()) == verdict


@given(st.binary(max_size=60))
def test_no_bytes_make_the_check_itself_fail(data):
    assert not check_drafter(data, KIMI, sglang()).ok
