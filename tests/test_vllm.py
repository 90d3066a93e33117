"""vLLM beside SGLang in one sweep: what is said of it, and the command that it becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from configs.counterparts import COUNTERPARTS, counterpart
from configs.flags import canonical, flag_problems, raw_flag_problems
from configs.plan import make_plan
from configs.problems import ConfigError
from configs.read import parse, parse_sweep, to_yaml
from configs.releases import known_flags
from configs.rules import problems, warnings
from configs.speculation import (
    Adaptive,
    Corpus,
    Eagle,
    Eagle3,
    Nextn,
    Ngram,
    Off,
    Speculation,
    Standalone,
)
from configs.sweep import Sweep
from configs.vllm import VllmSpeculation, not_for_vllm, vllm_speculation
from tasks.launch import Secrets, engine_argv, engine_env, secret_env
from tasks.unmatched import unmatched_settings
from tests import sweeps

CHAIN: Any = {"num_steps": 3, "topk": 1, "draft_tokens": 4}
MIXED = """
name: mixed
question: Which engine, with or without EAGLE-3?
hosts: [box]
engine:
  kind: sglang
  model: /m/target
  flags: {tp-size: 8, max-running-requests: 64, cuda-graph-max-bs: 64, mem-fraction-static: 0.85}
engines:
  vllm:
    kind: vllm
    model: /m/target
    flags: {tensor-parallel-size: 8, max-num-seqs: 64, gpu-memory-utilization: 0.9}
baseline: base
arms:
  base: {}
  eagle: {speculation: {kind: eagle3, drafter: /d, num_steps: 3, topk: 1, draft_tokens: 4}}
  v-base: {engine: vllm}
  v-eagle:
    engine: vllm
    flags: {enable-prefix-caching: false}
    speculation: {kind: eagle3, drafter: /d, num_steps: 3, topk: 1, draft_tokens: 4}
probes: {load: {kind: stream, prompts: mixed, concurrency: [1, 8]}}
blocks: 2
"""


def mixed(*changes: tuple[str, str]) -> Sweep:
    text = MIXED
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return parse(Sweep, text, "mixed.yaml")


def said(*changes: tuple[str, str]) -> list[str]:
    return [f"{s.where}: {s.message}" for s in problems(mixed(*changes), sweeps.host())]


def argv(arm: str, *changes: tuple[str, str]) -> list[str]:
    host = sweeps.host(pythons={"vllm": "/opt/vllm/bin/python"})
    return engine_argv(mixed(*changes), host, arm, {}, port=8000, api_key="canary")


def test_arms_of_both_engines_stand_in_one_sweep():
    assert parse_sweep(MIXED, "mixed.yaml") == mixed()
    assert said() == []
    assert parse(Sweep, to_yaml(mixed()), "again.yaml") == mixed()


def test_the_command_of_vllm():
    assert argv("v-eagle") == [
        "/opt/vllm/bin/python",
        "-m",
        "vllm.entrypoints.cli.main",
        "serve",
        "/m/target",
        "--host",
        "127.0.0.1",
        "--port",
        "8000",
        "--enable-prompt-tokens-details",
        "--tensor-parallel-size",
        "8",
        "--max-num-seqs",
        "64",
        "--gpu-memory-utilization",
        "0.9",
        "--no-enable-prefix-caching",
        "--speculative-config",
        '{"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}',
    ]
    assert "--speculative-config" not in argv("v-base")
    assert argv("eagle")[:5] == [
        "/opt/sglang/bin/python",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "/m/target",
    ]


def test_the_key_of_vllm_stands_in_no_list_of_processes():
    engine = mixed().engines["vllm"]
    assert "canary" not in argv("v-base")
    assert secret_env(engine, Secrets({"HF_TOKEN": "t"}, "canary")) == {
        "HF_TOKEN": "t",
        "VLLM_API_KEY": "canary",
    }
    env = engine_env(mixed(), sweeps.host(), "v-base", {})
    assert env["VLLM_SERVER_DEV_MODE"] == "1"
    assert "VLLM_SERVER_DEV_MODE" not in engine_env(mixed(), sweeps.host(), "base", {})


def test_what_we_add_can_be_taken_away():
    words = argv(
        "v-base",
        (
            "v-base: {engine: vllm}",
            "v-base: {engine: vllm, flags: {enable-prompt-tokens-details: false}}",
        ),
    )
    assert "--no-enable-prompt-tokens-details" in words


WAYS: list[tuple[Speculation, dict[str, Any] | None]] = [
    (Off(), None),
    (
        Eagle3(drafter="/d", **CHAIN),
        {"method": "eagle3", "model": "/d", "num_speculative_tokens": 3},
    ),
    (
        Eagle(drafter="/d", **CHAIN),
        {"method": "eagle", "model": "/d", "num_speculative_tokens": 3},
    ),
    (Nextn(), {"method": "mtp"}),
    (Nextn(**CHAIN), {"method": "mtp", "num_speculative_tokens": 3}),
    (
        Standalone(drafter="/d", **CHAIN),
        {"method": "draft_model", "model": "/d", "num_speculative_tokens": 3},
    ),
    (Ngram(draft_tokens=5), {"method": "ngram", "num_speculative_tokens": 4}),
]


@pytest.mark.parametrize(("way", "wanted"), WAYS)
def test_every_way_of_speculating_in_vllms_words(way, wanted):
    found = vllm_speculation(way)
    assert (None if found is None else json.loads(found.text())) == wanted
    assert list(not_for_vllm(way)) == []


IMPOSSIBLE: list[tuple[Speculation, str]] = [
    (
        Eagle3(drafter="/d", num_steps=3, topk=2, draft_tokens=8),
        "topk: vLLM drafts chains only, not 2 branches: set topk: 1 and draft_tokens: 4",
    ),
    (
        Eagle3(drafter="/d"),
        (
            "num_steps: is missing: vLLM has no default here; give num_steps, topk: 1 and "
            "draft_tokens (num_steps + 1)"
        ),
    ),
    (
        Eagle(drafter="/d", adaptive=Adaptive(), **CHAIN),
        "adaptive: vLLM's number of steps is fixed: leave it out",
    ),
    (
        Ngram(draft_tokens=8, max_breadth=4),
        "max_breadth: is a setting of SGLang's n-grams, which vLLM's have not: leave it out",
    ),
    (
        Ngram(draft_tokens=8, corpus=Corpus(path="/c", tokens=4)),
        "corpus: is a setting of SGLang's n-grams, which vLLM's have not: leave it out",
    ),
]


@pytest.mark.parametrize(("way", "message"), IMPOSSIBLE)
def test_what_vllm_cannot_do_is_refused_with_the_file(way, message):
    assert [f"{key}: {text}" for key, text in not_for_vllm(way)] == [message]


WRONG: dict[str, tuple[tuple[str, str], str]] = {
    "a limit of its own": (
        ("max-num-seqs: 64", "max-num-seqs: 32"),
        (
            "engines.vllm.flags.max-num-seqs: max-num-seqs is 32 for v-base, and "
            "max-running-requests, which is SGLang's name for it, 64 for base: engines are compared "
            "under equal limits (docs/engines.md); make them equal"
        ),
    ),
    "no limit": (
        ("max-num-seqs: 64, ", ""),
        (
            "engines.vllm.flags.max-num-seqs: is not set for v-base, v-eagle: each engine has a "
            "default of its own, so the arms would not be comparable; set it for all, to at least 8"
        ),
    ),
    "fewer GPUs": (
        ("tensor-parallel-size: 8, ", ""),
        (
            "engines.vllm.flags.tensor-parallel-size: tensor-parallel-size is 1 for v-base, and "
            "tp-size, which is SGLang's name for it, 8 for base: engines are compared under equal "
            "limits (docs/engines.md); make them equal"
        ),
    ),
    "another target": (
        ("kind: vllm\n    model: /m/target", "kind: vllm\n    model: /m/other"),
        (
            "engines.vllm.model: is another target than that of base (/m/target): the arms would "
            "not be comparable; give both engines the same folder"
        ),
    ),
    "a flag of the other engine": (
        ("gpu-memory-utilization: 0.9", "mem-fraction-static: 0.9"),
        (
            "engines.vllm.flags.mem-fraction-static: is a flag of SGLang, not of vLLM: write "
            "gpu-memory-utilization"
        ),
    ),
    "an abbreviation": (
        ("tensor-parallel-size: 8", "tensor-parallel: 8"),
        (
            "engines.vllm.flags.tensor-parallel: is an abbreviation (argparse would take it "
            "silently): write it in full: tensor-parallel-size"
        ),
    ),
    "a tree": (
        (
            "flags: {enable-prefix-caching: false}\n    speculation: {kind: eagle3, drafter: /d, num_steps: 3, topk: 1, draft_tokens: 4}",
            "speculation: {kind: eagle3, drafter: /d, num_steps: 2, topk: 2, draft_tokens: 4}",
        ),
        (
            "arms.v-eagle.speculation.topk: vLLM drafts chains only, not 2 branches: set topk: 1 "
            "and draft_tokens: 3"
        ),
    ),
    "no counters": (
        ("enable-prefix-caching: false", "disable-log-stats: true"),
        (
            "arms.v-eagle.speculation: could not be measured: disable-log-stats takes the counters "
            "away that alone tell vLLM's acceptance; leave it out"
        ),
    ),
    "no ready line": (
        ("gpu-memory-utilization: 0.9", "uvicorn-log-level: warning"),
        (
            "engines.vllm.flags.uvicorn-log-level: hides the line by which a start is known to be "
            "over: leave it out"
        ),
    ),
    "our own variable": (
        ("v-base: {engine: vllm}", 'v-base: {engine: vllm, env: {VLLM_SERVER_DEV_MODE: "0"}}'),
        (
            "arms.v-base.env.VLLM_SERVER_DEV_MODE: is set by us, to empty the prefix cache and read "
            "settings: leave it out"
        ),
    ),
    "a pretended acceptance": (
        ("enable-prefix-caching: false}\n", "seed: 1}\n    simulate: {accept_length: 2.5}\n"),
        (
            "arms.v-eagle.simulate: is of SGLang alone: vLLM 0.33 is told no acceptance to pretend "
            "here; leave it out"
        ),
    ),
    "random weights": (
        ("gpu-memory-utilization: 0.9", "load-format: dummy"),
        (
            "engines.vllm.flags.load-format: random weights accept nothing, and vLLM is told no "
            "acceptance to pretend: real weights here, or SGLang's arms with weights: dummy"
        ),
    ),
    "steps to be recorded": (
        (
            "probes: {load",
            "probes: {inside: {kind: profile, prompts: mixed, concurrency: [1]}, load",
        ),
        (
            "probes.inside: records decode steps with SGLang's profiler, and v-base, v-eagle run on "
            "vLLM: ask for it in a sweep of SGLang's arms"
        ),
    ),
    "a screen": (
        (
            "blocks: 2",
            "factors: {nccl: {default: {}, ll: {NCCL_PROTO: LL}}}\nscreen: {factor: nccl}",
        ),
        (
            "screen: judges what carries SGLang's all-reduces, and v-base, v-eagle run on vLLM: "
            "screen in a sweep of SGLang's arms"
        ),
    ),
    "a secret flag": (
        ("gpu-memory-utilization: 0.9", "hf-token: x"),
        (
            "engines.vllm.flags.hf-token: would put a secret into a file and into every list of "
            "processes: leave it out"
        ),
    ),
    "both ways to speculate": (
        ("gpu-memory-utilization: 0.9", "spec-tokens: 3"),
        "engines.vllm.flags.spec-tokens: is set by speculation: write it there",
    ),
    "a switch by its other name": (
        ("enable-prefix-caching: false", "no-enable-prefix-caching: true"),
        (
            "arms.v-eagle.flags.no-enable-prefix-caching: turns enable-prefix-caching off: write "
            "enable-prefix-caching: false"
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_would_make_engines_incomparable_is_named(name):
    change, message = WRONG[name]
    assert message in said(change)


def test_an_arm_names_an_engine_that_is_there():
    with pytest.raises(ConfigError, match=r"arms.v-base.engine: no engine is called 'trt': vllm"):
        mixed(("v-base: {engine: vllm}", "v-base: {engine: trt}"))


def test_an_engine_without_a_kind_is_sglang_as_it_was():
    sweep = mixed(("kind: sglang\n  model", "model"))
    assert sweep.engine.kind == "sglang"
    with pytest.raises(ConfigError, match=r"engine.kind: 'vlm' is not known: did you mean vllm"):
        mixed(("kind: sglang\n", "kind: vlm\n"))
    with pytest.raises(ConfigError, match=r"engine.modell: unknown key: did you mean model\?"):
        mixed(("kind: sglang\n  model", "modell"))


def test_vllm_listens_to_its_own_host_only():
    open_host = sweeps.host(listen="0.0.0.0", api_key_from="KEY")
    (message,) = [s.message for s in problems(mixed(), open_host)]
    assert message.startswith("host box listens on 0.0.0.0: vLLM serves /reset_prefix_cache")


def test_an_engine_that_nobody_uses_is_said():
    unused = mixed(
        ("v-base: {engine: vllm}", "v-base: {env: {A: b}}"),
        ("    engine: vllm\n    flags: {enable-prefix-caching: false}\n", "    env: {A: c}\n"),
    )
    assert "engines.vllm" in [s.where for s in warnings(unused)]


def test_arms_of_two_engines_have_intents_of_their_own():
    plan = make_plan(mixed())
    assert len({trial.intent for trial in plan.trials}) == 4


def test_settings_without_a_counterpart_are_listed():
    lines = unmatched_settings(mixed(("tp-size: 8", "tp-size: 8, schedule-policy: fcfs")))
    assert "SGLang's schedule-policy has no counterpart in vLLM" in lines
    assert any("mem-fraction-static and vLLM's gpu-memory-utilization are near" in x for x in lines)
    assert not any("max-num-seqs" in line or "tp-size" in line for line in lines)
    assert unmatched_settings(sweeps.sweep()) == ()


def test_every_counterpart_is_a_flag_of_its_engine():
    for row in COUNTERPARTS:
        for engine in ("sglang", "vllm"):
            assert canonical(row.name(engine), engine) == row.name(engine)
            assert row.name(engine) in known_flags(engine)
        assert row.note or row.weight == "same"
    assert counterpart("max-num-seqs", "vllm", "sglang") == "max-running-requests"
    assert counterpart("tp-size", "sglang", "sglang") == "tp-size"


def test_flags_of_a_broken_file_are_judged_for_the_engines_it_speaks_of():
    data = {"engines": {"v": {"kind": "vllm", "flags": {"max-num-seqs": 4, "ten": 1}}}}
    assert [s.where for s in raw_flag_problems(data)] == ["engines.v.flags.ten"]
    assert list(flag_problems({"max-num-seqs": 4}, "vllm")) == []


def test_a_drafter_of_vllm_is_named():
    with pytest.raises(ConfigError, match="model: is missing: eagle3 needs a drafter's folder"):
        parse(VllmSpeculation, '{"method": "eagle3", "num_speculative_tokens": 3}', "f")
    with pytest.raises(ConfigError, match="num_speculative_tokens: is missing: ngram has no"):
        parse(VllmSpeculation, '{"method": "ngram"}', "f")
    assert VllmSpeculation(method="mtp", num_speculative_tokens=1).model is None


def test_what_sglang_refuses_or_overwrites_is_said_of_its_arms_alone():
    adaptive = "kind: eagle3, drafter: /d, num_steps: 3, topk: 1, draft_tokens: 4, adaptive: {}"
    plain = adaptive.removesuffix(", adaptive: {}")
    fixed = "arms.eagle.flags.enable-dp-attention: SGLang falls back to fixed steps with it"
    (told,) = said(
        (
            f"eagle: {{speculation: {{{plain}}}}}",
            f"eagle: {{flags: {{enable-dp-attention: true}}, speculation: {{{adaptive}}}}}",
        )
    )
    assert told.startswith(fixed)
    variable = 'CUDA_DEVICE_MAX_CONNECTIONS: "1"'
    for arm, expected in (("v-base: {engine: vllm", []), ("base: {", ["arms.base"])):
        env = "env: {" + variable + "}"
        joined = f"{arm}, {env}" if arm.endswith("vllm") else f"{arm}{env}"
        found = [w.where for w in warnings(mixed((arm, joined))) if "MAX_CONN" in w.where]
        assert found == [f"{where}.env.CUDA_DEVICE_MAX_CONNECTIONS" for where in expected]


def test_arms_with_random_and_with_real_weights_are_not_compared():
    problems_told = said(
        ("kind: sglang\n  model: /m/target", "kind: sglang\n  weights: dummy\n  model: /m/target"),
        (
            "eagle: {speculation",
            "eagle: {simulate: {accept_length: 2.5}, speculation",
        ),
    )
    assert [text.partition(":")[0] for text in problems_told] == ["engines.vllm"]
    assert "has not the dummy weights of base's engine" in problems_told[0]


def test_random_weights_are_no_key_of_vllm():
    with pytest.raises(ConfigError, match=r"engines\.vllm\.weights"):
        mixed(("kind: vllm\n", "kind: vllm\n    weights: dummy\n"))
