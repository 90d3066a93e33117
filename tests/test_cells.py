"""What a sweep leaves out: the plan, its blocks and what the terminal says agree on the rest."""

from __future__ import annotations

import io
import itertools
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from configs.cells import cell_problems, cells
from configs.copies import calibration_of
from configs.plan import blocks_of, make_plan
from configs.problems import ConfigError
from configs.read import parse_document, parse_sweep
from configs.rules import warnings
from flows.question import pose
from flows.show import plan_text
from tests.sweeps import TEXT, sweep, unchecked, write_host

TWO_FACTORS = (
    "    ll: {env: {NCCL_PROTO: LL}}",
    (
        "    ll: {NCCL_PROTO: LL}\n    simple: {NCCL_PROTO: Simple}\n"
        "  attention:\n    triton: {attention-backend: triton}\n    fa3: {attention-backend: fa3}"
    ),
)


def keeping(rules: str, *more: tuple[str, str]):
    return sweep(TWO_FACTORS, ("probes:", f"{rules}\nprobes:"), *more)


def refused(rules: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        keeping(rules)
    return [f"{problem.where}: {problem.message}" for problem in caught.value.problems]


def names(asked) -> list[str]:
    return [str(cell) for cell in cells(asked)]


def test_without_rules_everything_is_crossed_in_the_order_of_the_file():
    crossing = itertools.product(["base", "a", "b"], ["default", "ll", "simple"], ["triton", "fa3"])
    assert names(sweep(TWO_FACTORS)) == ["+".join(cell) for cell in crossing]


def test_a_rule_leaves_out_every_cell_that_it_fits():
    left = names(keeping("exclude: [{nccl: ll, attention: fa3}, {arm: b, nccl: [ll, simple]}]"))
    gone = {
        "base+ll+fa3", "a+ll+fa3", "b+ll+fa3", "b+ll+triton", "b+simple+triton", "b+simple+fa3",
    }  # fmt: skip
    assert left == [name for name in names(sweep(TWO_FACTORS)) if name not in gone]


def test_a_list_names_the_cells_and_its_gaps_are_first_levels_and_all_arms():
    asked = keeping(
        "combinations:\n  - {}\n  - {nccl: ll}\n  - {arm: [base, a], nccl: simple, attention: fa3}".replace(
            "- {}", "- {nccl: default}"
        )
    )
    assert names(asked) == [
        "base+default+triton", "base+ll+triton", "base+simple+fa3",
        "a+default+triton", "a+ll+triton", "a+simple+fa3",
        "b+default+triton", "b+ll+triton",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("exclude: [{nccl: l}]", "exclude.0.nccl: there is no level 'l': did you mean ll?"),
        ("exclude: [{ncc: ll}]", "exclude.0.ncc: no factor is called so: did you mean nccl?"),
        ("exclude: [{arm: c}]", "exclude.0.arm: there is no arm 'c': one of base, a, b"),
        ("exclude: [{}]", "exclude.0: is empty: name a factor's level, or an arm"),
        (
            "exclude: [{nccl: ll, attention: fa3}, {arm: a, attention: fa3, nccl: ll}]",
            "exclude.1: excludes nothing that the rules above do not exclude already: take it out",
        ),
        (
            "combinations: [{nccl: [default, ll, simple]}, {attention: fa3}, {nccl: ll, arm: a}]",
            "combinations.2: lists what stands above already: take it out",
        ),
        (
            "exclude: [{arm: base, nccl: default}]",
            (
                "exclude: leaves out the baseline base at the first levels (nccl: default, attention: "
                "triton), which all else rests on: keep that cell"
            ),
        ),
        ("exclude: [{arm: a}]", "arms.a: is in no cell that exclude leaves: take the arm out"),
        (
            "combinations: [{nccl: [default, ll]}, {attention: fa3}]",
            "factors.nccl.simple: is in no cell that combinations leaves: take the level out",
        ),
        (
            "exclude: [{nccl: ll, arm: a}]\ncombinations: [{nccl: ll}]",
            (
                "exclude: stands beside combinations, which lists every cell already: keep one of the "
                "two"
            ),
        ),
        ("exclude: [{nccl: []}]", "exclude.0.nccl: must not be empty"),
        ("exclude: [{nccl: 3}]", "exclude.0.nccl.0: must be text, not 3: put it in quotes"),
    ],
)
def test_a_rule_that_is_a_mistake_is_named_by_its_place(rules, said):
    assert refused(rules) == [said]


def test_a_mistake_stands_on_its_line():
    text = TEXT.replace("probes:", "exclude:\n  - {arm: a, nccl: ll}\n  - {arm: c}\nprobes:")
    with pytest.raises(ConfigError) as caught:
        parse_sweep(text, "f.yaml")
    at = text.splitlines().index("  - {arm: c}") + 1
    assert str(caught.value).startswith(f"f.yaml:{at}: exclude.1.arm: ")


def test_a_factor_called_arm_is_refused_only_where_the_word_is_taken():
    renamed = ("  nccl:", "  arm:")
    assert sweep(renamed).factors.keys() == {"arm"}
    found = cell_problems(unchecked(renamed, ("probes:", "exclude: [{arm: a}]\nprobes:")))
    assert [said.where for said in found] == ["factors.arm"]


def test_a_cell_that_loses_its_baseline_is_told_beforehand():
    asked = keeping("exclude: [{arm: base, nccl: ll}]")
    (said,) = warnings(asked)
    assert said.where == "exclude"
    assert said.message.startswith("a+ll+triton, a+ll+fa3, b+ll+triton and 1 more will not be")
    (said,) = warnings(keeping("combinations: [{attention: [triton, fa3]}, "
                               "{arm: a, nccl: [ll, simple], attention: fa3}]"))  # fmt: skip
    assert "only with the same arm at a factor's first level" in said.message
    (said,) = warnings(
        keeping("combinations: [{nccl: default}, {arm: a, nccl: [ll, simple], attention: fa3}]")
    )
    assert said.message.startswith("a+ll+fa3, a+simple+fa3 will be compared with nothing")


def test_a_baseline_that_others_are_compared_with_at_its_levels_is_not_warned_about():
    asked = keeping("combinations: [{nccl: default}, {nccl: [ll, simple], attention: fa3}]")
    assert warnings(asked) == []


def test_rules_of_fairness_speak_of_what_is_run_only():
    """At the level that is too large for the host only one arm runs, and that is excluded."""
    big = ("    ll: {env: {NCCL_PROTO: LL}}", "    ll: {tp-size: 16}\n    x: {NCCL_PROTO: LL}")
    rule = ("probes:", "exclude: [{arm: [a, b], nccl: ll}]\nprobes:")
    context = ("    tp-size: 8\n", "    tp-size: 8\n    context-length: 9000\n")
    asked = sweep(big, rule, context)
    assert names(asked) == [
        "base+default",
        "base+ll",
        "base+x",
        "a+default",
        "a+x",
        "b+default",
        "b+x",
    ]


@st.composite
def rule_sets(draw):
    """Any rules over two factors and three arms, most of them senseless."""
    keys = {
        "arm": ["base", "a", "b"],
        "nccl": ["default", "ll", "simple"],
        "attention": ["triton", "fa3"],
    }
    rule = st.fixed_dictionaries(
        {}, optional={k: st.lists(st.sampled_from(v), min_size=1, max_size=2) for k, v in keys.items()}
    )  # fmt: skip
    return draw(st.sampled_from(["exclude", "combinations"])), draw(
        st.lists(rule, min_size=1, max_size=3)
    )


@settings(max_examples=80)
@given(rule_sets())
def test_whatever_the_rules_every_block_of_the_plan_holds_the_same_cells(asked):
    word, rules = asked
    tree = parse_document(TEXT.replace(*TWO_FACTORS), "f").data | {word: rules}
    wrong = []
    try:
        read = parse_sweep(json.dumps(tree), "f")
    except ConfigError as error:
        wrong = [problem.where for problem in error.problems]
    if wrong:
        assert all(where.startswith((word, "arms.", "factors.")) for where in wrong)
        return
    run = {cell.key for cell in cells(read)}
    assert ("base", "default", "triton") in run
    for arm, nccl, attention in itertools.product(*[["base", "a", "b"], ["default", "ll", "simple"], ["triton", "fa3"]]):  # fmt: skip
        mine = {"arm": arm, "nccl": nccl, "attention": attention}
        firsts = {"arm": arm, "nccl": "default", "attention": "triton"}
        if word == "exclude":
            expected = not any(all(mine[k] in v for k, v in rule.items()) for rule in rules)
        else:
            expected = any(all(mine[k] in rule.get(k, [firsts[k]]) for k in mine) for rule in rules)
        assert ((arm, nccl, attention) in run) == expected
    blocks = blocks_of(make_plan(read).trials)
    for trials in blocks.values():
        assert {(t.arm, *t.levels.values()) for t in trials} == run
        assert len(trials) == len(run)
    assert cells(calibration_of(read, 2))


def test_the_plan_on_the_terminal_shows_the_remaining_cells_and_says_what_is_left_out(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_host(tmp_path)
    text = TEXT.replace("probes:", "exclude: [{arm: b, nccl: ll}]\nprobes:")
    (tmp_path / "s.yaml").write_text(text)
    out = io.StringIO()
    question = pose("s.yaml")
    Console(file=out, width=100).print(plan_text(question))
    shown = out.getvalue()
    assert "10 trials in 2 blocks" in shown
    assert "\na+ll\n" in shown
    assert "b+ll" not in shown
    assert "b02-b-ll" not in shown
    assert "Not run: 1 of 6 cells of the crossing" in shown


def test_what_is_left_out_changes_the_plan_and_no_fingerprint():
    """Trials that stay are the same trials: a narrower sweep goes on with what was measured."""
    whole, part = (
        make_plan(sweep()),
        make_plan(sweep(("probes:", "exclude: [{arm: b, nccl: ll}]\nprobes:"))),
    )
    intents = {trial.id: trial.intent for trial in whole.trials}
    assert whole.digest != part.digest
    assert {trial.id: trial.intent for trial in part.trials}.items() <= intents.items()


def test_a_large_sweep_with_a_rule_is_read_and_planned_in_seconds():
    """4,500 cells; each rule on arms and levels looks at all of them."""
    tree = parse_document(TEXT, "f").data
    tree["factors"] = {
        "f": {f"l{n}": {"A": str(n)} for n in range(40)},
        "g": {f"l{n}": {"page-size": n + 1} for n in range(38)},
    }
    tree |= {"exclude": [{"arm": "a", "f": "l7", "g": "l9"}], "blocks": 2}
    start = time.process_time()
    asked = parse_sweep(json.dumps(tree), "f")
    assert warnings(asked) == []
    assert len(make_plan(asked).trials) == 2 * (3 * 40 * 38 - 1)
    assert time.process_time() - start < 20
