"""What a way of speculating says against other flags: refused before anything is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from configs.rules import problems
from configs.speculation_rules import speculation_problems
from tests import sweeps

DRAFTER = """      kind: eagle3
      drafter: /models/a
      num_steps: 3
      topk: 1
      draft_tokens: 4
"""
TREE = DRAFTER.replace("topk: 1", "topk: 4").replace("draft_tokens: 4", "draft_tokens: 8")
NGRAM = "      kind: ngram\n      draft_tokens: 8\n"
NARROW = NGRAM + "      max_breadth: 1\n"
ALONE = "      kind: standalone\n      drafter: /models/a\n"
ADAPTIVE = DRAFTER + "      adaptive: {}\n"
V2 = "      draft_tokens: 8\n    env: {SGLANG_ENABLE_SPEC_V2: 'true'}\n"


def said(way: str, *flags: str) -> list[Any]:
    more = "".join(f"    {flag}\n" for flag in flags)
    asked = sweeps.unchecked((DRAFTER, way), ("    tp-size: 8\n", f"    tp-size: 8\n{more}"))
    return speculation_problems(asked)


@pytest.mark.parametrize(
    ("way", "flags", "where", "message"),
    [
        (
            TREE,
            ["page-size: 64", "attention-backend: trtllm_mla"],
            "engine.flags.page-size",
            (
                "64 with 4 branches per step works with the attention backend flashinfer or fa3 or "
                "triton only"
            ),
        ),
        (
            NGRAM,
            ["page-size: 64", "attention-backend: fa3"],
            "engine.flags.page-size",
            "64 with 10 branches per step works with the attention backend flashinfer only",
        ),
        (
            TREE,
            ["decode-attention-backend: trtllm_mha"],
            "engine.flags.decode-attention-backend",
            "trtllm_mha takes chains only, not topk 4",
        ),
        (
            NGRAM,
            ["enable-dp-attention: true"],
            "engine.flags.enable-dp-attention",
            "SGLang refuses it with ngram",
        ),
        (
            ALONE,
            ["enable-dp-attention: true"],
            "engine.flags.enable-dp-attention",
            "SGLang refuses it with standalone",
        ),
        (
            ADAPTIVE,
            ["enable-two-batch-overlap: true"],
            "engine.flags.enable-two-batch-overlap",
            "SGLang falls back to fixed steps with it",
        ),
        (
            TREE.replace("      draft_tokens: 8\n", V2),
            [],
            "arms.a.speculation",
            "SGLANG_ENABLE_SPEC_V2 is on, which takes chains only",
        ),
    ],
)
def test_what_the_engine_would_refuse_or_switch_off_is_named(way, flags, where, message):
    (found,) = said(way, *flags)
    assert found.where == where
    assert found.message.startswith(message)


@pytest.mark.parametrize(
    ("way", "flags"),
    [
        (DRAFTER, ["page-size: 64", "attention-backend: trtllm_mha"]),
        (TREE, ["page-size: 64", "attention-backend: fa3"]),
        (TREE, ["page-size: 64"]),
        (TREE, ["attention-backend: triton"]),
        (NARROW, ["page-size: 64", "attention-backend: fa3"]),
        (NGRAM, ["attention-backend: fa3"]),
        (ADAPTIVE, ["enable-dp-attention: false"]),
        (DRAFTER, ["enable-dp-attention: true"]),
    ],
)
def test_what_works_is_not_refused(way, flags):
    assert said(way, *flags) == []


def test_a_sweep_is_refused_for_it():
    asked = sweeps.unchecked((DRAFTER, ALONE), ("tp-size: 8", "enable-dp-attention: true"))
    assert any("enable-dp-attention" in found.where for found in problems(asked))


def test_flags_of_ngram_have_their_place_in_speculation():
    asked = sweeps.unchecked(("tp-size: 8", "speculative-ngram-capacity: 5"))
    (found,) = [s for s in problems(asked) if "ngram" in s.where]
    assert found.message == "is set by speculation: write it there"
