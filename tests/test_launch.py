"""The engine's command is exactly what the files ask for, each argument one element."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.problems import ConfigError
from tasks.launch import engine_argv, engine_env, flag_words, read_secrets
from tests.sweeps import host, sweep, unchecked

HEAD = [
    "/opt/sglang/bin/python",
    *("-m", "sglang.launch_server"),
    *("--model-path", "/models/target", "--host", "127.0.0.1", "--port", "30000"),
]
SHARED = ["--tp-size", "8", "--max-running-requests", "64", "--cuda-graph-max-bs", "64"]
CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"


def argv(arm: str, *changes: tuple[str, str], levels: Any = None) -> list[str]:
    asked = unchecked(*changes)
    return engine_argv(asked, host(), arm, levels or {}, port=30000)


ARGV: dict[str, Any] = {
    "baseline": ("base", [], {}, SHARED),
    "eagle3 with its numbers": (
        "a",
        [],
        {},
        [
            *SHARED,
            *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/models/a"),
            *CHAIN.split(),
        ],
    ),
    "eagle3, numbers left to the engine": (
        "b",
        [],
        {},
        [
            *SHARED,
            *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/models/b"),
        ],
    ),
    "ngram": (
        "base",
        [("{kind: off}", "{kind: ngram, draft_tokens: 12}")],
        {},
        [*SHARED, "--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "12"],
    ),
    "a level's flag takes the engine's place, under any name": (
        "base",
        [("    default: {}", "    default: {flags: {tensor-parallel-size: 4}}")],
        {"nccl": "default"},
        [*SHARED[2:], "--tensor-parallel-size", "4"],
    ),
    "an arm's flag wins, a level's wins over it": (
        "base",
        [
            ("    speculation: {kind: off}", "    flags: {page-size: 16, log-level: info}"),
            ("    default: {}", "    default: {flags: {page-size: 64}}"),
        ],
        {"nccl": "default"},
        [*SHARED, "--log-level", "info", "--page-size", "64"],
    ),
    "switches": (
        "base",
        [("tp-size: 8", "trust-remote-code: true\n    disable-cuda-graph: false")],
        {},
        ["--trust-remote-code", *SHARED[2:]],
    ),
    "a switch of the engine that an arm turns off": (
        "base",
        [
            ("tp-size: 8", "trust-remote-code: true"),
            ("    speculation: {kind: off}", "    flags: {trust-remote-code: false}"),
        ],
        {},
        SHARED[2:],
    ),
    "lists, fractions, JSON": (
        "base",
        [
            (
                "tp-size: 8",
                (
                    "cuda-graph-bs: [1, 2, 4]\n    mem-fraction-static: 0.85\n"
                    '    json-model-override-args: \'{"a": "b c"}\''
                ),
            )
        ],
        {},
        [
            *("--cuda-graph-bs", "1", "2", "4", "--mem-fraction-static", "0.85"),
            *("--json-model-override-args", '{"a": "b c"}'),
            *SHARED[2:],
        ],
    ),
}


@pytest.mark.parametrize("name", ARGV)
def test_argv(name):
    arm, changes, levels, expected = ARGV[name]
    assert argv(arm, *changes, levels=levels) == [*HEAD, *expected]


def test_a_model_that_starts_with_a_dash_is_no_flag():
    assert argv("base", ("/models/target", "-k25"))[3] == "--model-path=-k25"


def test_the_host_may_say_where_it_listens_and_which_python_runs():
    there = host(listen="0.0.0.0", api_key_from="KEY")
    words = engine_argv(sweep(), there, "base", {}, port=1, python="/other/python", api_key="-k y")
    assert words[0] == "/other/python"
    assert words[words.index("--host") + 1] == "0.0.0.0"
    assert words[-1] == "--api-key=-k y"


HOSTILE = ["$(touch x); echo", "a b", "'", '"', "\\", "*", "~", "`id`", "&& true", "|", "\n", "ü"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_one_element_and_survives_a_shell(text):
    words = flag_words({"served-model-name": text, "log-level": "info"})
    assert words == ["--served-model-name", text, "--log-level", "info"]
    program = "import sys, json; print(json.dumps(sys.argv[1:]))"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)} {shlex.join(words)}"
    out = subprocess.run(command, shell=True, check=True, capture_output=True, text=True)
    assert json.loads(out.stdout) == words


def test_a_leading_dash_is_tied_to_its_flag():
    assert flag_words({"a": "-1", "b": "--c", "d": -1}) == ["--a=-1", "--b=--c", "--d", "-1"]


@given(st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,5}", fullmatch=True), st.text(max_size=8)))
def test_any_text_reaches_argparse_as_it_is(flags):
    words = flag_words(flags)
    rest = iter(words)
    read = {}
    for word in rest:
        name, tied, value = word.partition("=")
        read[name[2:]] = value if tied else next(rest)
    assert read == flags


def test_the_environment_is_merged_from_host_engine_arm_and_level():
    asked = unchecked(
        ("  kind: sglang", "  kind: sglang\n  env: {A: engine, B: engine, H: engine}"),
        ("    speculation: {kind: off}", "    env: {B: arm}"),
    )
    there = host(env={"H": "host", "Z": "host"})
    assert engine_env(asked, there, "base", {"nccl": "ll"}) == {
        "SPT_NOENV": "1",
        "PYTHONUNBUFFERED": "1",
        "A": "engine",
        "B": "arm",
        "H": "engine",
        "Z": "host",
        "NCCL_PROTO": "LL",
    }


def test_secrets_come_from_the_environment_and_are_known_for_masking():
    there = host(env_from=["HF_TOKEN"], api_key_from="KEY")
    asked = sweep(("  kind: sglang", "  kind: sglang\n  env_from: [OTHER, HF_TOKEN]"))
    secrets = read_secrets(asked, there, {"HF_TOKEN": "t", "KEY": "k", "OTHER": "o", "X": "x"})
    assert secrets.env == {"HF_TOKEN": "t", "OTHER": "o"}
    assert secrets.api_key == "k"
    assert sorted(secrets.values) == ["k", "o", "t"]


def test_every_missing_secret_is_named_with_the_file_that_wants_it():
    there = host(env_from=["HF_TOKEN"], api_key_from="KEY")
    asked = sweep(("  kind: sglang", "  kind: sglang\n  env_from: [OTHER]"))
    with pytest.raises(ConfigError) as caught:
        read_secrets(asked, there, {"HF_TOKEN": ""})
    assert [str(problem) for problem in caught.value.problems] == [
        (
            "configs/hosts/box.yaml: env_from: HF_TOKEN is not set in this environment: export it, or "
            "take it out"
        ),
        (
            "configs/sweeps/two-drafters.yaml: engine.env_from: OTHER is not set in this environment: "
            "export it, or take it out"
        ),
        (
            "configs/hosts/box.yaml: api_key_from: KEY is not set in this environment: export it, or "
            "take it out"
        ),
    ]


def test_no_secrets_are_none():
    assert read_secrets(sweep(), host(), {}).values == []
