"""Levels in the short form and from ready-made sets: what the sweep holds, whatever way it is said."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.level_sets import LevelSet
from configs.plan import make_plan
from configs.problems import ConfigError
from configs.read import every_file, parse, parse_sweep, read_level_set, read_sweep, to_yaml
from configs.releases import known_flags
from configs.rules import warnings
from configs.sweep import Level, Sweep
from flows.question import pose
from tests.sweeps import TEXT, sweep, write_host

FACTOR = "  nccl:\n    default: {}\n    ll: {env: {NCCL_PROTO: LL}}\n"
LL = "    ll: {env: {NCCL_PROTO: LL}}"
SET = """\
name: mine
about: What I try on my box.
levels:
  default: {}
  ll: {NCCL_PROTO: LL}
  triton: {attention-backend: triton}
sources:
  NCCL_PROTO: the guide
  attention-backend: SGLang 0.5.9
"""


def using(words: str) -> Sweep:
    return sweep((FACTOR, f"  nccl: {words}\n"))


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_sweep(text, "f.yaml")
    return [str(problem) for problem in caught.value.problems]


def write_set(folder, text: str = SET) -> None:
    place = folder / "configs" / "factors"
    place.mkdir(parents=True, exist_ok=True)
    (place / "mine.yaml").write_text(text, encoding="utf-8")


def test_both_forms_are_one_value():
    long = "    ll: {env: {NCCL_PROTO: LL}, flags: {attention-backend: triton, tp-size: 8}}"
    short = "    ll: {NCCL_PROTO: LL, attention-backend: triton, tp-size: 8}"
    assert sweep((LL, long)) == sweep((LL, short))
    assert make_plan(sweep((LL, long))) == make_plan(sweep((LL, short)))


@given(
    st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,9}", fullmatch=True), st.text(max_size=3)),
    st.dictionaries(st.sampled_from(sorted(known_flags())), st.integers(1, 9)),
)
def test_no_setting_is_both_a_variable_and_a_flag(env, flags):
    assert Level.model_validate(env | flags) == Level(env=env, flags=flags)


def test_no_flag_of_the_engine_is_called_like_a_word_of_the_long_form():
    assert not {"flags", "env"} & set(known_flags())


@pytest.mark.parametrize(
    ("level", "said"),
    [
        (
            "{NCCL_PROTO: LL, env: {NCCL_ALGO: Ring}}",
            (
                "f.yaml:29: factors.nccl.ll.NCCL_PROTO: stands beside flags or env: put it into one of "
                "them, or leave both words out"
            ),
        ),
        (
            "{Nccl_Proto: LL}",
            (
                "f.yaml:29: factors.nccl.ll.Nccl_Proto: is neither a variable (capitals, such as "
                "NCCL_PROTO) nor a flag (small letters): did you mean NCCL_PROTO? A variable with small "
                "letters goes under env"
            ),
        ),
        (
            "\n      NCCL_PROTO: LL\n      NCCL_MIN_CTAS: 8",
            "f.yaml:31: factors.nccl.ll.NCCL_MIN_CTAS: must be text, not 8: put it in quotes",
        ),
        (
            "\n      NCCL_PROTO: LL\n      mem-frac: 0.8",
            (
                "f.yaml:31: factors.nccl.ll.mem-frac: is an abbreviation (argparse would take it "
                "silently): write it in full: mem-fraction-static"
            ),
        ),
        ("LL", "f.yaml:29: factors.nccl.ll: must be a mapping of keys, not 'LL'"),
    ],
)
def test_a_mistake_in_the_short_form_is_named_as_it_is_written(level, said):
    assert complaints(TEXT.replace(LL, f"    ll: {level}")) == [said]


def test_a_set_becomes_levels_of_the_sweep_and_reads_back(tmp_path):
    asked = using("pcie")
    assert asked == using("{use: pcie}")
    assert asked.factors["nccl"] == read_level_set("pcie").levels
    path = tmp_path / f"{asked.name}.yaml"
    path.write_text(to_yaml(asked))
    assert read_sweep(str(path)) == asked


def test_a_choice_of_levels_and_levels_of_ones_own():
    asked = using("{use: pcie, only: [ll, default], mine: {NCCL_P2P_LEVEL: PHB}}")
    assert list(asked.factors["nccl"]) == ["ll", "default", "mine"]


def test_levels_may_be_called_like_the_words():
    asked = using("{use: {NCCL_PROTO: LL}, only: {NCCL_PROTO: Simple}}")
    assert list(asked.factors["nccl"]) == ["use", "only"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nvlnk", "factors.nccl: configs/factors/nvlnk.yaml: no such file: did you mean nvlink?"),
        ("{use: pci}", "factors.nccl.use: configs/factors/pci.yaml: no such file: did you mean pcie?"),
        ("{use: pcie, only: [l]}", "factors.nccl.only: the set pcie has no level 'l': did you mean ll?"),
        ("{use: pcie, only: []}", "factors.nccl.only: is an empty list: name a level, or leave it out"),
        ("{use: pcie, ll: {}}", "factors.nccl.ll: the set pcie has a level of this name: call yours otherwise"),
    ],
)  # fmt: skip
def test_a_mistake_in_naming_a_set_has_its_place(words, said):
    assert complaints(TEXT.replace(FACTOR, f"  nccl: {words}\n")) == [f"f.yaml:27: {said}"]


def test_a_set_of_ones_own_comes_first_and_its_mistakes_name_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_set(tmp_path)
    assert list(using("mine").factors["nccl"]) == ["default", "ll", "triton"]
    write_set(tmp_path, SET.replace("NCCL_PROTO: LL", "NCCL_PROTO: 1"))
    (said,) = complaints(TEXT.replace(FACTOR, "  nccl: mine\n"))
    assert said.startswith("configs/factors/mine.yaml:5: levels.ll.")
    assert said.endswith("must be text, not 1: put it in quotes")


def test_every_setting_of_a_set_has_a_source_and_no_source_is_left_over():
    for text, said in [
        (SET.replace("  NCCL_PROTO: the guide\n", ""), "sources.NCCL_PROTO: is missing"),
        (SET + "  NCCL_ALGO: the guide\n", "sources.NCCL_ALGO: is set by no level"),
    ]:
        with pytest.raises(ConfigError) as caught:
            parse(LevelSet, text, "mine.yaml")
        assert said in str(caught.value)


def test_what_a_set_says_is_part_of_plan_and_fingerprints(tmp_path, monkeypatch):
    """An edit of the set's file makes another plan; trials of levels that stayed are the same."""
    monkeypatch.chdir(tmp_path)
    write_host(tmp_path)
    (tmp_path / "s.yaml").write_text(TEXT.replace(FACTOR, "  nccl: mine\n"))
    write_set(tmp_path)
    before = pose("s.yaml").plan
    write_set(tmp_path, SET.replace("NCCL_PROTO: LL", "NCCL_PROTO: Simple"))
    after = pose("s.yaml").plan
    assert before.digest != after.digest
    changed = {
        t.levels["nccl"] for t, u in zip(before.trials, after.trials, strict=True)
        if t.intent != u.intent
    }  # fmt: skip
    assert changed == {"ll"}
    write_set(tmp_path, SET.replace("the guide", "somebody"))
    assert pose("s.yaml").plan.trials == before.trials


@pytest.mark.parametrize("path", [pytest.param(p, id=p.name) for p in every_file("factors")])
def test_a_shipped_set_may_be_used_as_it_is(path):
    shipped = read_level_set(str(path))
    first, *others = shipped.levels
    assert shipped.levels[first] == Level()
    assert len(others) >= 3
    asked = sweep((FACTOR, f"  nccl: {shipped.name}\n"))
    assert warnings(asked) == []
    json.dumps(asked.model_dump(mode="json"))
