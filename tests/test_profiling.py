"""A sweep may hold profiles beside its streams; they change nothing that is measured."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from configs.plan import make_plan
from configs.probe import Profile, Stream, profiles_of, rungs_of, streams_of
from configs.problems import ConfigError
from configs.read import parse_sweep, to_yaml
from configs.rules import problems, warnings
from flows.question import Question
from flows.show import plan_text
from tasks.profile_run import start_request
from tasks.texts import identities, read_sets, texts_of
from tests.sweeps import changed, host, sweep, unchecked

PROFILE = """\
  inside:
    kind: profile
    prompts: mixed
    concurrency: [8]
    template: {kind: none}
"""
BESIDE = ("blocks: 2", f"{PROFILE}blocks: 2")


def said(text: str) -> str:
    """What is wrong in a profile of this text."""
    with pytest.raises(ConfigError) as caught:
        parse_sweep(changed(("blocks: 2", f"{PROFILE}{text}blocks: 2")), "sweep.yaml")
    return "; ".join(map(str, caught.value.problems))


def test_streams_and_profiles_are_told_apart_by_kind():
    probes = sweep(BESIDE).probes
    assert list(streams_of(probes)) == list(rungs_of(probes)) == ["load"]
    assert isinstance(probes["load"], Stream)
    (profile,) = profiles_of(probes).values()
    assert profile == probes["inside"]
    assert (profile.decode_steps, profile.concurrency, profile.requests(8)) == (20, (8,), 128)


def test_a_sweep_with_a_profile_reads_back_as_itself():
    asked = sweep(BESIDE)
    assert parse_sweep(to_yaml(asked), "sweep.yaml") == asked


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("    decode_steps: 0\n", "decode_steps: must be at least 1"),
        ("    decode_steps: 5000\n", "decode_steps: must be at most 200"),
        ("    steps: 20\n", "steps: unknown key"),
        ("    min_requests: 3\n", "min_requests: unknown key"),
        ("    warm_up: {}\n", "warm_up: unknown key"),
    ],
)
def test_what_is_wrong_in_a_profile_is_said(text, words):
    assert words in said(text)


def test_ladders_without_repeats_and_text_only():
    with pytest.raises(ConfigError, match="8 stands twice"):
        sweep(("blocks: 2", PROFILE.replace("[8]", "[8, 8]") + "blocks: 2"))
    with pytest.raises(ConfigError, match="name a set of prompts"):
        sweep(("blocks: 2", PROFILE.replace("mixed", "random") + "blocks: 2"))


def test_a_probe_without_a_kind_is_asked_for_one():
    with pytest.raises(ConfigError, match="one of stream, profile"):
        sweep(("    kind: stream\n", ""))


def test_a_probe_of_no_known_kind_is_refused():
    with pytest.raises(ConfigError, match="did you mean profile"):
        sweep(("blocks: 2", PROFILE.replace("kind: profile", "kind: profil") + "blocks: 2"))


def test_its_concurrency_counts_where_the_server_s_limits_do():
    high = unchecked(("blocks: 2", PROFILE.replace("[8]", "[96]") + "blocks: 2"))
    assert any("below the probes' concurrency 96" in p.message for p in problems(high))
    assert problems(sweep(BESIDE)) == []
    assert warnings(sweep(BESIDE)) == warnings(sweep())


def test_it_belongs_to_the_intent_so_that_adding_one_runs_the_trials_again():
    before, after = make_plan(sweep()), make_plan(sweep(BESIDE))
    assert [t.id for t in before.trials] == [t.id for t in after.trials]
    assert before.trials[0].intent != after.trials[0].intent


def test_it_has_prompts_of_its_own():
    asked = sweep(BESIDE)
    sets = read_sets(asked)
    assert "prompts:mixed" in identities(sets)
    assert [len(texts) for texts in texts_of(asked, sets, None)["inside"].values()] == [128]


def test_the_plan_shows_that_it_runs_last_and_gives_no_speed():
    asked = sweep(BESIDE)
    question = Question(
        sweep=asked,
        hosts={"box": host()},
        patches=(),
        plan=make_plan(asked),
        warnings=(),
        sets={},
    )
    out = io.StringIO()
    Console(file=out, width=200).print(plan_text(question))
    assert "inside: after those, 20 decode steps recorded" in out.getvalue()


def test_the_engine_is_asked_for_one_step_more_and_no_stacks():
    profile = Profile(prompts="mixed", concurrency=(1,), decode_steps=7, host_events=False)
    asked = start_request(profile)
    assert (asked["num_steps"], asked["activities"]) == (8, ["GPU"])
    assert not asked["with_stack"]
    assert not asked["profile_by_stage"]
