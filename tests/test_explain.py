"""What pydantic reports becomes one sentence at one key, and only where it is a cause."""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationError

from configs.explain import explain, only_causes, unknown_key
from configs.names import Count, Name
from configs.problems import Said
from configs.schema import all_models, kinds_of, missing_kinds, siblings
from configs.sweep import Sweep
from configs.values import Value


class Cat(Value):
    kind: Literal["cat"] = "cat"
    lives: Count
    """How many are left."""


class Dog(Value):
    kind: Literal["dog"] = "dog"
    tricks: tuple[Name, ...] = ()


class Owner(Value):
    pet: Cat | Dog
    others: dict[Name, Cat | Dog] = {}
    mood: Literal["good", "bad"] = "good"
    pin: str = ""


def said(data) -> list[str]:
    error = None
    try:
        Owner.model_validate(data, strict=True)
    except ValidationError as caught:
        error = caught
    return [f"{where}: {message}" for where, message in explain(error, data, {}, Owner)]


def test_only_the_variant_that_the_kind_names_is_spoken_of():
    assert said({"pet": {"kind": "cat"}}) == [
        "pet.lives: is missing (cat needs it): How many are left"
    ]


def test_a_missing_kind_is_an_error_though_one_class_would_fit():
    assert said({"pet": {"lives": 9}}) == ["pet.kind: is missing: one of cat, dog"]
    assert said({"pet": {"kind": "dog"}, "others": {"a": {}}}) == [
        "others.a.kind: is missing: one of cat, dog"
    ]


def test_nothing_more_is_said_of_what_lies_in_an_unknown_kind():
    assert said({"pet": {"lives": "many", "tail": 1}}) == ["pet.kind: is missing: one of cat, dog"]


def test_nothing_for_a_mapping_says_which_kinds_there_are():
    assert said({"pet": None}) == [
        "pet: must be a mapping with a kind (cat, dog), not nothing (null)"
    ]


def test_a_long_value_is_cut():
    (message,) = said({"pet": {"kind": "cat", "lives": "x" * 500}})
    assert message.endswith("...")
    assert len(message) < 150


def test_a_choice_names_the_nearest():
    dog = {"kind": "dog"}
    assert said({"pet": dog, "mood": "goood"}) == ["mood: is 'goood': did you mean good?"]
    assert said({"pet": dog, "mood": "zzz"}) == ["mood: is 'zzz': one of good, bad"]


def test_a_misspelt_key_is_not_called_missing_too():
    unknown = Said("a.drafer", unknown_key("drafer", ["drafter", "kind"]))
    missing = Said("a.drafter", "is missing: a folder")
    elsewhere = Said("b.drafter", "is missing: a folder")
    assert only_causes([missing, unknown, elsewhere, unknown]) == [unknown, elsewhere]


def test_an_unknown_key_where_nothing_is_known():
    assert unknown_key("x", []) == "unknown key: nothing is expected here"


def test_models_and_kinds_of_a_sweep():
    kinds = kinds_of(Sweep)
    assert kinds["Eagle3"] == "eagle3"
    assert "Template" not in kinds, "its kind is a choice within one class"
    assert siblings("Eagle3", Sweep) == ["off", "eagle3", "eagle", "nextn", "standalone", "ngram"]
    assert siblings("Sglang", Sweep) == ["sglang", "vllm"]
    assert len(all_models(Sweep)) == len(set(all_models(Sweep)))
    assert list(missing_kinds({"engine": {"model": "/m"}}, Sweep)) == []
