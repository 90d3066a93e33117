"""Trying without weights: loudly tagged, refused where it would be hidden, never beside the real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from configs.cautions import warnings
from configs.layers import arm_flags
from configs.plan import arm_env
from configs.rules import problems
from configs.synthetic import Simulate, Synthetic, synthetic_of
from configs.synthetic_rules import synthetic_problems
from infra.rehearsal import truth
from tasks import entry
from tasks.check import check
from tasks.check_facts import Evidence, ProbeFacts, ServerFacts
from tasks.compare import compare
from tasks.decision import decision_sentence
from tasks.report import render_report
from tests import rehearsing, sweeping, sweeps
from tests.builders import measurement, record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.record import TrialRecord
    from tests.sweeping import Ground

PRETENDING = (
    "      drafter: /models/b\n",
    "      drafter: /models/b\n    simulate: {accept_length: 2.5}\n",
)
DUMMY = ("  model: /models/target\n", "  model: /models/target\n  weights: dummy\n")
BOTH = [
    DUMMY,
    PRETENDING,
    ("      draft_tokens: 4\n", "      draft_tokens: 4\n    simulate: {accept_length: 4}\n"),
]


def test_an_arm_pretends_by_variables_that_give_the_asked_mean():
    asked = sweeps.sweep(PRETENDING)
    assert arm_env(asked, "b", {"nccl": "ll"}) == {
        "NCCL_PROTO": "LL",
        "SGLANG_SIMULATE_ACC_LEN": "2.5",
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
    }
    assert arm_env(asked, "a", {"nccl": "default"}) == {}
    assert "speculative-draft-load-format" not in arm_flags(asked, "b", {"nccl": "ll"})


def test_dummy_weights_are_those_of_target_and_drafters():
    asked = sweeps.sweep(*BOTH)
    levels = {"nccl": "default"}
    assert arm_flags(asked, "base", levels)["load-format"] == "dummy"
    assert "speculative-draft-load-format" not in arm_flags(asked, "base", levels)
    assert arm_flags(asked, "a", levels)["speculative-draft-load-format"] == "dummy"


def test_a_dummy_drafter_leaves_the_target_real():
    asked = sweeps.sweep(
        (PRETENDING[0], f"{PRETENDING[0]}    simulate: {{accept_length: 2, drafter: dummy}}\n")
    )
    flags = arm_flags(asked, "b", {"nccl": "default"})
    assert flags["speculative-draft-load-format"] == "dummy"
    assert "load-format" not in flags


@pytest.mark.parametrize(
    ("changes", "where", "message"),
    [
        (
            [("    speculation: {kind: off}\n", "    simulate: {accept_length: 2}\n")],
            "arms.base.simulate",
            "needs a drafter that is a model, not kind off",
        ),
        (
            [("draft_tokens: 4\n", "draft_tokens: 4\n    simulate: {accept_length: 4.5}\n")],
            "arms.a.simulate.accept_length",
            "is 4.5, a verify step of this arm gives at most 4 tokens",
        ),
        ([DUMMY, PRETENDING], "arms.a.simulate", "is missing: random weights accept nothing"),
        (
            [("    tp-size: 8\n", "    tp-size: 8\n    load-format: dummy\n")],
            "engine.flags.load-format",
            "is said elsewhere: write engine.weights: dummy",
        ),
        (
            [("ll: {env: {NCCL_PROTO: LL}}", "ll: {env: {SGLANG_SIMULATE_ACC_LEN: '3'}}")],
            "factors.nccl.ll.env.SGLANG_SIMULATE_ACC_LEN",
            "is said elsewhere: write arms.<name>.simulate",
        ),
    ],
)
def test_what_makes_no_sense_or_hides_itself_is_refused(changes, where, message):
    asked = sweeps.unchecked(*changes)
    (found,) = [s for s in synthetic_problems(asked) if s.where == where]
    assert found.message.startswith(message)
    assert found in problems(asked)


def test_a_host_file_cannot_make_every_arm_pretend():
    host = sweeps.host(env={"SGLANG_SIMULATE_ACC_LEN": "3"})
    (found,) = synthetic_problems(sweeps.sweep(), host)
    assert "so that every arm would pretend" in found.message


def test_a_plan_says_that_something_is_made_up():
    said = {w.where: w.message for w in warnings(sweeps.sweep(PRETENDING))}
    assert "b pretend their acceptance and are never compared with a" in said["arms"]
    assert "one length" in said["probes.load.sampling.ignore_eos"]
    assert "no claim about text" in dict(warnings(sweeps.sweep(*BOTH)))["engine.weights"]


@pytest.mark.parametrize(
    ("flags", "env", "found"),
    [
        ({"tp-size": 8}, {}, None),
        ({"load-format": "auto", "speculative-algorithm": "EAGLE3"}, {}, None),
        ({"load-format": "dummy"}, {}, Synthetic(weights="dummy")),
        (
            {"load-format": "dummy", "speculative-algorithm": "EAGLE3"},
            {"SGLANG_SIMULATE_ACC_LEN": "2.5"},
            Synthetic(weights="dummy", drafter_weights="dummy", accept_length=2.5),
        ),
        (
            {"speculative-draft-load-format": "dummy", "speculative-algorithm": "EAGLE3"},
            {},
            Synthetic(drafter_weights="dummy"),
        ),
        ({"speculative-algorithm": "EAGLE3"}, {"SGLANG_SIMULATE_ACC_LEN": "-1"}, None),
        ({"speculative-algorithm": "EAGLE3"}, {"SGLANG_SIMULATE_ACC_LEN": "x"}, None),
        ({}, {"SGLANG_SIMULATE_ACC_LEN": "3"}, None),
    ],
)
def test_what_is_made_up_is_read_off_what_the_engine_is_given(flags, env, found):
    assert synthetic_of(flags, env) == found


def speculating(arm: str, block: int, length: float, *, synthetic: Any = None) -> TrialRecord:
    return record(
        arm,
        block,
        (measurement(user_tok_s=60.0 * length / 1.9, accept_length=length),),
        asked={"speculative-algorithm": "EAGLE3"},
        synthetic=synthetic,
    )


def plain(block: int, synthetic: Any = None) -> TrialRecord:
    return record("base", block, (measurement(user_tok_s=60.0 + block / 10),), synthetic=synthetic)


PRETENDED = Synthetic(accept_length=3.0)
ALL_DUMMY = Synthetic(weights="dummy")


def test_pretended_acceptance_never_stands_beside_a_real_one():
    found = compare(
        [
            record
            for block in (1, 2, 3)
            for record in (
                plain(block),
                speculating("ours", block, 2.8),
                speculating("pretend", block, 3.0, synthetic=PRETENDED),
            )
        ]
    )
    assert {cell.arm for cell in found.cells} == {"ours"}
    assert found.synthetic == ()
    assert {refusal.arm for refusal in found.refusals} == {"pretend"}
    (difference,) = found.refusals[0].differences
    assert (difference.fact, difference.expected, difference.found) == (
        "acceptance",
        "real",
        "simulated",
    )


def test_an_arm_of_another_engine_speculates_in_earnest_too():
    vllm = speculating("ours", 1, 2.8).model_copy(update={"asked": {"speculative-config": "{}"}})
    found = compare([plain(1), vllm, speculating("pretend", 1, 3.0, synthetic=PRETENDED)])
    assert {cell.arm for cell in found.cells} == {"ours"}


def test_beside_plain_decoding_alone_it_is_compared_and_the_report_says_so_on_top():
    records = [
        record
        for block in (1, 2, 3)
        for record in (plain(block), speculating("pretend", block, 3.0, synthetic=PRETENDED))
    ]
    found = compare(records)
    assert {cell.arm for cell in found.cells} == {"pretend"}
    assert found.synthetic == ("simulated acceptance",)
    assert decision_sentence(found).startswith(
        "MADE UP (simulated acceptance): no claim about any drafter. With pretended figures pretend"
    )
    text = render_report(found, records)
    assert text.startswith("> **MADE UP (simulated acceptance): no claim about any drafter.**")


def test_dummy_weights_are_compared_with_dummy_weights_only():
    both = [
        record
        for block in (1, 2, 3)
        for record in (
            plain(block, ALL_DUMMY),
            speculating(
                "pretend",
                block,
                3.0,
                synthetic=Synthetic(weights="dummy", drafter_weights="dummy", accept_length=3.0),
            ),
        )
    ]
    found = compare(both)
    assert {cell.arm for cell in found.cells} == {"pretend"}
    assert found.synthetic == ("dummy weights", "simulated acceptance")
    mixed = [
        r.model_copy(update={"synthetic": PRETENDED}) if r.arm == "pretend" else r for r in both
    ]
    refused = compare(mixed)
    assert refused.cells == ()
    assert {d.fact for d in refused.refusals[0].differences} == {"weights"}


def test_mlflow_can_tell_them_apart():
    made_up = speculating("pretend", 1, 3.0, synthetic=PRETENDED)
    assert entry.tags_of(made_up)["synthetic"] == "simulated accept length 3"
    assert "MADE UP" in entry.describe(made_up)
    assert entry.tags_of(plain(1))["synthetic"] == "none"


def facts(length: float, **more: Any) -> Evidence:
    probe = ProbeFacts(measurement(accept_length=length), speculating=True, draft_steps=3, **more)
    return Evidence(ServerFacts(speculating=True), (probe,))


def test_pretended_acceptance_is_held_against_what_was_asked():
    names = [{f.name for f in check(facts(length, simulated=3.95))} for length in (3.9, 2.8)]
    assert names == [set(), {"simulation_not_in_effect"}]
    assert {f.name for f in check(facts(1.0, simulated=1.0))} == set()
    assert "acceptance_too_good" in {f.name for f in check(facts(3.95))}


def test_the_methods_of_the_engine_have_the_means_that_its_source_gives_them():
    assert 1 + sum(truth.simulated_shares(2.3, "match-expected", 3)) == pytest.approx(2.3)
    assert truth.simulated_shares(1.0, "match-expected", 3) == (0.0, 0.0, 0.0)
    assert truth.simulated_shares(9.0, "match-expected", 3) == (1.0, 1.0, 1.0)
    # Rounded and cut below at 1: the mean of draws around 1 is well above it.
    assert 1 + sum(truth.simulated_shares(1.0, "multinomial", 3)) == pytest.approx(1.38, abs=0.01)
    with pytest.raises(ValueError, match="Invalid simulate_acc_method"):
        truth.simulated_shares(2.0, "other", 3)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("made-up")) as made:
        rehearsing.patch(made.folder)
        yield made


def test_a_trial_without_any_weights_pretends_what_it_is_told(ground: Ground) -> None:
    asked = sweeping.sweep("pretending", arms="custom", patches="", tokens=96)
    engine = asked.engine.model_copy(update={"weights": "dummy"})
    arm = asked.arms["custom"].model_copy(update={"simulate": Simulate(accept_length=2.5)})
    for weights in list(ground.folder.rglob("model.safetensors")):
        weights.rename(weights.with_suffix(".away"))
    made = ground.trial(asked.model_copy(update={"engine": engine, "arms": {"custom": arm}}))
    trial = made.record
    assert trial.failure is None, trial.failure
    assert {f.name for f in trial.findings} <= {"client_was_the_bottleneck"}
    assert trial.synthetic == Synthetic(weights="dummy", drafter_weights="dummy", accept_length=2.5)
    (measured,) = trial.measurements
    assert measured.accept_length == pytest.approx(2.5, rel=0.03)
    assert trial.environment["SGLANG_SIMULATE_ACC_METHOD"] == "match-expected"
    report = (made.run.path / "report" / "report.md").read_text()
    assert "MADE UP (dummy weights, simulated acceptance)" in report
