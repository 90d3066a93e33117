"""What makes a sweep senseless, unfair or impossible is said before the night, at its key."""

from __future__ import annotations

import pytest

from configs.cautions import warnings
from configs.fairness import unfairness
from configs.problems import Said
from configs.rules import host_problems, problems
from configs.secret_names import looks_secret, secret_reason
from tests.sweeps import changed, host, sweep, unchecked

UNSET = ("    max-running-requests: 64\n", "")


def said(*changes) -> list[str]:
    return [f"{where}: {message}" for where, message in problems(unchecked(*changes))]


def cautions(*changes) -> list[str]:
    return [f"{where}: {message}" for where, message in warnings(unchecked(*changes))]


def test_a_good_sweep_has_neither_problems_nor_warnings():
    assert said() == []
    assert cautions() == []
    assert problems(sweep(), host()) == []


PROBLEMS = {
    "baseline": (
        [("baseline: base", "baseline: none")],
        ["baseline: no arm is called 'none': name one of base, a, b"],
    ),
    "factor without levels": (
        [("    default: {}\n    ll: {env: {NCCL_PROTO: LL}}\n", "    {}\n")],
        ["factors.nccl: has no levels: name at least one"],
    ),
    "host twice": ([("[box]", "[box, box]")], ["hosts: box stands twice: name it once"]),
    "patch twice": (
        [("blocks: 2", "patches: [p, p]")],
        ["patches: p stands twice: name it once"],
    ),
    "secret by value": (
        [("NCCL_PROTO: LL", "HF_TOKEN: abc")],
        [
            (
                "factors.nccl.ll.env.HF_TOKEN: looks like a secret written into a file: name it under "
                "env_from, and set it in the controller's environment"
            )
        ],
    ),
    "variable of ours": (
        [("NCCL_PROTO: LL", "SPT_NOENV: ''")],
        [
            (
                "factors.nccl.ll.env.SPT_NOENV: is set by us, to find the engine's processes again: "
                "leave it out"
            )
        ],
    ),
    "two factors, one variable": (
        [("probes:", "  other:\n    x: {env: {NCCL_PROTO: Simple}}\nprobes:")],
        ["factors.other.x: sets NCCL_PROTO, which factor nccl sets too: keep it in one"],
    ),
    "two factors, one flag under two names": (
        [
            ("    default: {}", "    default: {flags: {tp-size: 4}}"),
            ("probes:", "  other:\n    x: {flags: {tensor-parallel-size: 2}}\nprobes:"),
        ],
        ["factors.other.x: sets tp-size, which factor nccl sets too: keep it in one"],
    ),
    "home folder": (
        [("/models/target", "~/target")],
        ["engine.model: ~ is not expanded, since no shell runs it: write the whole path"],
    ),
    "space at the end": (
        [("/models/target", '"/models/target "')],
        ["engine.model: '/models/target ' begins or ends with a space: take it out"],
    ),
    "target as drafter": (
        [("/models/a", "/models/target")],
        ["arms.a.speculation.drafter: is the target itself: name the drafter's folder"],
    ),
    "random prompts": (
        [("prompts: mixed", "prompts: random-ids")],
        [
            (
                "probes.load.prompts: random-ids is another program's word: write prompts: random "
                "and random: {tokens: 512}"
            )
        ],
    ),
    "limit unset": (
        [UNSET],
        [
            (
                "engine.flags.max-running-requests: is not set for base, a, b: SGLang's default is 48 "
                "when speculating and another when not, so the arms would not be comparable; set it "
                "for all, to at least 8"
            )
        ],
    ),
    "limit set for one arm alone": (
        [UNSET, ("  b:\n", "  b:\n    flags: {max-running-requests: 64}\n")],
        [
            (
                "engine.flags.max-running-requests: is not set for base, a: SGLang's default is 48 "
                "when speculating and another when not, so the arms would not be comparable; set it "
                "for all, to at least 8"
            )
        ],
    ),
    "limit below the probes": (
        [("max-running-requests: 64", "max-running-requests: 4")],
        [
            (
                "engine.flags.max-running-requests: 4 (for base, a, b) is below the probes' "
                "concurrency 8: requests would queue; raise it to 8 or lower the concurrency"
            )
        ],
    ),
    "limit below the probes in one level": (
        [("    default: {}", "    default: {}\n    low: {flags: {max-running-requests: 4}}")],
        [
            (
                "factors.nccl.low.flags.max-running-requests: 4 (for base, a, b) is below the probes' "
                "concurrency 8: requests would queue; raise it to 8 or lower the concurrency"
            )
        ],
    ),
    "arms on unequal GPUs": (
        [("  b:\n", "  b:\n    flags: {tensor-parallel-size: 4}\n")],
        [
            (
                "arms.b.flags.tensor-parallel-size: tp-size differs (8 for base, 4 for b): no speedup "
                "could be computed between them; set it once under engine.flags, or make it a factor"
            )
        ],
    ),
    "arms with unequal graphs": (
        [("  b:\n", "  b:\n    flags: {cuda-graph-max-bs: 32}\n")],
        [
            (
                "arms.b.flags.cuda-graph-max-bs: cuda-graph-max-bs differs (64 for base, 32 for b): no "
                "speedup could be computed between them; set it once under engine.flags, or make it a "
                "factor"
            )
        ],
    ),
    "two settings of one name": (
        [("  b:\n", "  a-ll:\n"), ("    ll:", "    ll-ll: {}\n    ll:")],
        [
            (
                "factors.nccl: two settings would both be called a-ll-ll: rename an arm or a level "
                "(their names are joined by '-')"
            )
        ],
    ),
    "too many trials": (
        [("blocks: 2", "blocks: 100000")],
        [
            (
                "factors: the sweep has 600,000 trials, each a start of the engine: 20,000 at most; "
                "cross fewer factors"
            )
        ],
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_named_at_its_key(name):
    changes, expected = PROBLEMS[name]
    assert said(*changes) == expected


def test_names_too_long_for_a_folder_are_refused():
    levels = "".join(f"  f{n}:\n    {'x' * 59}{n}: {{}}\n" for n in range(3))
    (problem,) = said(("probes:", f"{levels}probes:"))
    assert "would name a folder: 150 at most" in problem


def test_arms_that_all_speculate_have_one_default_and_need_no_limit():
    both = ("    speculation: {kind: off}", "    speculation: {kind: ngram, draft_tokens: 4}")
    assert said(UNSET, both) == []
    (problem,) = said(UNSET, both, ("[1, 8]", "[64]"))
    assert problem.startswith(
        "engine.flags.max-running-requests: 48 (for base, a, b, SGLang's own when speculating) is"
    )


def test_a_sweep_without_speculation_needs_no_limit():
    only = changed().split("  a:\n")[0] + "probes:" + changed().split("probes:")[1]
    text = only.replace("    max-running-requests: 64\n", "")
    assert "eagle3" not in text
    assert said((changed(), text)) == []


def test_unequal_gpus_as_a_factor_are_fair():
    assert unfairness(unchecked(("    default: {}", "    default: {flags: {tp-size: 4}}"))) == []


GPUS = {
    "engine": (("tp-size: 8", "tp-size: 16"), "engine.flags.tp-size: asks for 16 GPUs"),
    "alias": (
        ("tp-size: 8", "tensor-parallel-size: 16"),
        "engine.flags.tensor-parallel-size: asks for 16 GPUs",
    ),
    "pipeline": (("tp-size: 8", "tp-size: 8\n    pp-size: 2"), "engine.flags.tp-size: asks for 16"),
    "replicas": (("tp-size: 8", "tp-size: 8\n    dp-size: 4"), "engine.flags.tp-size: asks for 32"),
    "level": (
        ("    default: {}", "    default: {}\n    wide: {flags: {tp-size: 16}}"),
        "factors.nccl.wide.flags.tp-size: asks for 16 GPUs",
    ),
}


@pytest.mark.parametrize("name", GPUS)
def test_more_gpus_than_the_host_has_are_refused_where_they_are_asked_for(name):
    change, start = GPUS[name]
    (problem,) = problems(unchecked(change), host())
    assert f"{problem.where}: {problem.message}".startswith(start)
    assert problem.message.endswith("host box has 8: lower tp-size")


def test_data_parallel_attention_takes_no_further_gpus():
    both = ("tp-size: 8", "tp-size: 8\n    dp-size: 8\n    enable-dp-attention: true")
    assert problems(unchecked(both), host()) == []


def test_one_machine_under_two_names_and_one_port_is_refused():
    first, second = host(port=30000), host(name="again", port=30000)
    (problem,) = host_problems([first, second])
    assert problem == Said(
        "hosts.1.port",
        "same host and port 30000 as hosts.0: 2 engines cannot share it; name the machine once, or "
        "give the engines ports of their own",
    )
    assert host_problems([first, host(name="again", port=30001)]) == []
    other = host(name="again", port=30000, connect={"kind": "ssh", "host": "gpu-b", "user": "me"})
    assert host_problems([first, other]) == []


def test_two_installations_on_one_machine_are_two_hosts():
    assert host_problems([host(), host(name="new", python="/opt/new/bin/python")]) == []


CAUTIONS = {
    "flag of no release": (
        [("tp-size: 8", "tp-size: 8\n    brand-new-thing: 1")],
        ["engine.flags.brand-new-thing: no SGLang release known here has this flag"],
    ),
    "graphs end below the load": (
        [("cuda-graph-max-bs: 64", "cuda-graph-max-bs: 2"), ("[1, 8]", "[1, 8, 32]")],
        [
            (
                "engine.flags.cuda-graph-max-bs: concurrency 8 and 32 exceeds cuda-graph-max-bs 2: "
                "decode falls back to eager mode"
            )
        ],
    ),
    "short answers": (
        [("    prompts: mixed", "    prompts: mixed\n    sampling: {max_new_tokens: 16}")],
        [
            (
                "probes.load.sampling.max_new_tokens: 16 output tokens are fewer than 40 decode steps: "
                "the acceptance reported will be that of the start of an answer, not of the rest"
            )
        ],
    ),
    "few prompts": (
        [
            (
                "    prompts: mixed",
                "    prompts: mixed\n    requests_per_slot: 1\n    min_requests: 1",
            )
        ],
        [
            (
                "probes.load.min_requests: 1 prompts say nothing about a drafter: acceptance depends "
                "on the text; use at least 4"
            )
        ],
    ),
    "a drafter on a backend for MLA": (
        [("tp-size: 8", "tp-size: 8\n    attention-backend: trtllm_mla")],
        [
            (
                f"engine.flags.attention-backend: the drafter of {arm} inherits trtllm_mla, which "
                "serves MLA models only: set speculative-draft-attention-backend (trtllm_mha, "
                "flashinfer or triton)"
            )
            for arm in ("a", "b")
        ],
    ),
    "a drafter on a backend of its own": (
        [
            (
                "tp-size: 8",
                (
                    "tp-size: 8\n    attention-backend: trtllm_mla\n"
                    "    speculative-draft-attention-backend: trtllm_mha"
                ),
            )
        ],
        [],
    ),
    "a drafter on a backend for all": (
        [("tp-size: 8", "tp-size: 8\n    attention-backend: flashinfer")],
        [],
    ),
    "overwritten variable": (
        [("NCCL_PROTO: LL", "CUDA_DEVICE_MAX_CONNECTIONS: '1'")],
        [
            (
                "factors.nccl.ll.env.CUDA_DEVICE_MAX_CONNECTIONS: has no effect: SGLang sets it to 8 "
                "always (0.5.9 to 0.5.23)"
            )
        ],
    ),
    "shell characters": (
        [("/models/target", "/models/k 25 $(touch x); echo"), ("/models/b", "/models/b*")],
        [
            "engine.model: path contains shell characters: it is quoted, not run",
            "arms.b.speculation.drafter: path contains shell characters: it is quoted, not run",
        ],
    ),
    "one block": (
        [("blocks: 2", "blocks: 1")],
        ["blocks: one block says nothing about the noise: run at least two"],
    ),
}


@pytest.mark.parametrize("name", CAUTIONS)
def test_what_may_run_but_should_be_known_is_said(name):
    changes, expected = CAUTIONS[name]
    assert cautions(*changes) == expected
    assert said(*changes) == []


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "hf_token", "OPENAI_API_KEY", "APIKEY", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD"],
)
def test_names_of_secrets_are_known(name):
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE",
        "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION",
        "NCCL_PROTO",
        "KEYBOARD",
        "SGLANG_PATCH",
    ],
)
def test_names_that_merely_hold_such_a_word_are_none(name):
    assert not looks_secret(name)


def test_a_value_that_says_what_it_is_is_a_secret_under_any_name():
    assert secret_reason("HUB", "hf_abcdefghijklmnopqrst") is not None
    assert secret_reason("HUB", "hf_transfer") is None
    assert secret_reason("NCCL_PROTO", "LL") is None
