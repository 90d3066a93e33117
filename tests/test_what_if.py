"""What if: how good a drafter must be and what one would give, against the pretend host's truth."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

import pytest

from configs.problems import ConfigError
from configs.read import parse_sweep
from configs.synthetic import Simulate, Synthetic
from infra.rehearsal import truth
from infra.rehearsal.forecast import forecast
from tasks.report_what_if import what_if_section
from tasks.step_cost import Step, step_cost
from tasks.what_if import what_if
from tests import rehearsing, sweeping, sweeps
from tests.builders import measurement, record

if TYPE_CHECKING:
    from tasks.record import TrialRecord
    from tasks.what_if_answers import Needed, WhatIf

TOKENS = 256
LADDER = (1, 8, 24)
LENGTHS = (1.0, 2.0, 3.0, 4.0)
PLAIN = truth.Arm()


def pretending(length: float, steps: int = 3) -> truth.Arm:
    shares = truth.simulated_shares(length, "match-expected", steps)
    return truth.Arm(True, shares, steps, 1, steps + 1)


def measured(arm: truth.Arm, noise: float) -> tuple[Any, ...]:
    """What a faultless client finds, by the engine's own rules."""
    found = []
    for users in LADDER:
        seen = forecast(arm, users, TOKENS, 6 * users, noise)
        found.append(
            measurement(
                concurrency=users,
                user_tok_s=seen.user_tok_s,
                accept_length=seen.accept_length,
                output_tok_s=seen.output_tok_s,
            )
        )
    return tuple(found)


@functools.cache
def night(
    blocks: int = 4,
    lengths: tuple[float, ...] = LENGTHS,
    noise: float = 0.002,
    steps: tuple[int, ...] = (3,),
) -> tuple[TrialRecord, ...]:
    """Records of plain arms and pretending ones, each boot with a noise of its own."""
    draw = random.Random(5)
    records = []
    for block in range(1, blocks + 1):
        records.append(record("base", block, measured(PLAIN, draw.gauss(1, noise))))
        records += [
            boot(block, chain, length, draw.gauss(1, noise))
            for chain in steps
            for length in ((*lengths[:-1], chain + 1.0) if len(lengths) > 2 else lengths)
        ]
    return tuple(records)


def boot(block: int, chain: int, length: float, noise: float) -> TrialRecord:
    """One boot of an arm that pretends."""
    return record(
        f"s{chain}-{length:g}",
        block,
        measured(pretending(length, chain), noise),
        asked={
            "speculative-algorithm": "EAGLE3",
            "speculative-num-steps": str(chain),
            "speculative-num-draft-tokens": str(chain + 1),
        },
        synthetic=Synthetic(accept_length=length),
    )


def slowed(one: TrialRecord, factor: float) -> TrialRecord:
    """The same trial with another speed of its users."""
    changed = tuple(
        m.model_copy(update={"user_tok_s": (m.user_tok_s or 0.0) * factor})
        for m in one.measurements
    )
    return one.model_copy(update={"measurements": changed})


def true_break_even(users: int, metric: str, steps: int = 3) -> float:
    """By halving: the accept length at which the truth's own speeds meet."""
    low, high = 1.0, 20.0
    target = getattr(truth.expected(PLAIN, users, TOKENS), metric)
    for _ in range(60):
        middle = (low + high) / 2
        # Any accept length can be asked of the closed form, beyond what the steps allow too.
        shares = tuple(min(1.0, max(0.0, middle - k)) for k in range(1, 21))
        arm = truth.Arm(True, shares, steps, 1, steps + 1)
        below = getattr(truth.expected(arm, users, TOKENS), metric) < target
        low, high = (middle, high) if below else (low, middle)
    return high


def pick(found: WhatIf, users: int, metric: str, drafts: int = 3) -> Needed:
    (one,) = [
        n
        for n in found.needed
        if (n.concurrency, n.metric, n.shape.drafts) == (users, metric, drafts)
    ]
    return one


@pytest.fixture(scope="module")
def found() -> WhatIf:
    answers = what_if(night(), {"card": 2.26, "better": 3.2})
    assert answers is not None
    return answers


@pytest.mark.parametrize("users", LADDER)
@pytest.mark.parametrize("metric", ["user_tok_s", "output_tok_s"])
def test_how_good_a_drafter_must_be_is_true_within_two_percent(
    found: WhatIf, users: int, metric: str
) -> None:
    one = pick(found, users, metric)
    assert one.accept_length == pytest.approx(true_break_even(users, metric), rel=0.02)
    assert one.blocks == 4
    assert one.low is not None
    assert one.accept_length is not None
    assert one.high is not None
    assert one.low < one.accept_length < one.high
    assert one.high / one.low < 1.03


@pytest.mark.parametrize("users", LADDER)
@pytest.mark.parametrize(("name", "length"), [("card", 2.26), ("better", 3.2)])
def test_what_a_drafter_of_a_card_would_give_is_true_within_two_percent(
    found: WhatIf, users: int, name: str, length: float
) -> None:
    wanted = truth.expected(pretending(length), users, TOKENS)
    plain = truth.expected(PLAIN, users, TOKENS)
    for one in found.expected:
        if (one.name, one.concurrency) == (name, users):
            value = getattr(wanted, one.metric)
            assert one.value == pytest.approx(value, rel=0.02), one.metric
            assert one.ratio == pytest.approx(value / getattr(plain, one.metric), rel=0.02)
            assert one.low is not None
            assert one.low < one.ratio


def test_the_cost_of_a_step_is_that_of_the_truth() -> None:
    answers = what_if(night(steps=(1, 3, 5)), {})
    assert answers is not None
    (cost,) = answers.costs
    assert cost.worst < 0.02
    for users in LADDER:
        assert cost.step_s(0, users) == pytest.approx(truth.base_step_s(users), rel=0.02)
        for steps in (1, 2, 3, 5):
            whole = truth.step_s(pretending(2, steps), users)
            assert cost.step_s(steps, users) == pytest.approx(whole, rel=0.03)
    for steps in (1, 3, 5):
        one = pick(answers, 8, "user_tok_s", steps)
        assert one.accept_length == pytest.approx(true_break_even(8, "user_tok_s", steps), rel=0.02)


def test_one_block_gives_answers_without_an_interval() -> None:
    answers = what_if(night(blocks=1), {"card": 2.0})
    assert answers is not None
    assert pick(answers, 8, "user_tok_s").accept_length is not None
    assert pick(answers, 8, "user_tok_s").low is None
    assert answers.expected[0].low is None


def test_without_two_lengths_or_a_plain_arm_nothing_is_claimed() -> None:
    assert what_if([r for r in night(blocks=1) if r.synthetic is None], {"card": 2.0}) is None
    alone = what_if(night(blocks=2, lengths=(2.0,)), {"card": 2.0})
    assert alone is not None
    assert (alone.needed, alone.expected) == ((), ())
    assert "two pretended accept lengths" in alone.notes[0]
    bare = what_if([r for r in night(blocks=2) if r.synthetic], {})
    assert bare is not None
    assert bare.notes == ("no arm decodes plainly",)


def test_a_card_beyond_what_the_shape_can_accept_gets_no_figure() -> None:
    answers = what_if(night(blocks=1), {"dream": 4.5})
    assert answers is not None
    assert answers.expected == ()


def test_steps_that_depend_on_what_they_accept_are_told() -> None:
    records = [
        slowed(one, 0.8) if one.synthetic == Synthetic(accept_length=3.0) else one
        for one in night(blocks=2)
    ]
    answers = what_if(records, {})
    assert answers is not None
    assert any("off the straight line" in note for note in answers.notes)


def test_a_real_drafter_beside_them_is_neither_reference_nor_point() -> None:
    ours = [
        record(
            "ours",
            block,
            (measurement(user_tok_s=500.0, accept_length=3.9),),
            asked={"speculative-algorithm": "EAGLE3"},
        )
        for block in (1, 2, 3, 4)
    ]
    alone, beside = what_if(night(), {}), what_if([*night(), *ours], {})
    assert alone == beside


def test_a_plane_needs_plain_steps_and_drafts() -> None:
    assert step_cost("load", {}, [Step(3, 1, 0.02)]) is None
    assert step_cost("load", {}, [Step(0, 1, 0.01)]) is None
    one = step_cost("load", {}, [Step(0, 1, 0.01), Step(3, 1, 0.016)])
    assert one is not None
    assert one.step_s(3, 1) == pytest.approx(0.016)
    assert one.step_s(1, 1) == pytest.approx(0.012)
    assert (one.plain_more_s, one.draft_more_s) == (0.0, 0.0)


def test_the_section_says_what_no_drafter_can_do(found: WhatIf) -> None:
    text = what_if_section(found)
    assert "Cost of a step, probe load: 15.7" in text
    assert "| 4 tokens a step | 24 | tokens/s per user | 2.4" in text
    assert "| card | 2.26 |" in text
    assert "no drafter can" not in text
    # Twice the time for every step: not even all drafts accepted make up for it.
    slow = what_if([slowed(r, 0.5) if r.synthetic else r for r in night(blocks=2)], {})
    assert "no drafter can: a step gives at most 4" in what_if_section(slow)
    assert what_if_section(None) == ""


LADDER_ARMS = """
  s1: {speculation: {kind: eagle3, drafter: /d, num_steps: 3, topk: 1, draft_tokens: 4}, simulate: {accept_length: 1}}
  s4: {speculation: {kind: eagle3, drafter: /d, num_steps: 3, topk: 1, draft_tokens: 4}, simulate: {accept_length: 4}}
"""


def test_a_question_without_its_arms_is_refused() -> None:
    asked = "seed: 3\nwhat_if: {card: 2.6}\n"
    with pytest.raises(ConfigError, match="what_if: needs two arms or more that differ in nothing"):
        parse_sweep(sweeps.changed(("seed: 3\n", asked)), "f")
    whole = sweeps.changed(("seed: 3\n", asked), ("arms:\n", f"arms:{LADDER_ARMS}"))
    assert parse_sweep(whole, "f").what_if == {"card": 2.6}
    with pytest.raises(ConfigError, match="needs an arm without speculation"):
        parse_sweep(
            whole.replace("{kind: off}", "{kind: ngram, draft_tokens: 4}"),
            "f",
        )


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.long
@pytest.mark.timeout(420)
def test_a_ladder_on_the_pretend_host_tells_its_truth(tmp_path: Any) -> None:
    tokens, users = 128, 2
    asked = sweeping.sweep("ladder", arms="base+tuned", patches="", tokens=tokens, per_slot=2)
    pretend = asked.arms["tuned"].model_copy(update={"env": {}})
    arms = {"base": asked.arms["base"].model_copy(update={"env": {}})}
    for length in (1, 2, 4):
        simulate = Simulate(accept_length=float(length), drafter="dummy")
        arms[f"s{length}"] = pretend.model_copy(update={"simulate": simulate})
    asked = asked.model_copy(update={"arms": arms, "what_if": {"card": 2.6}})
    with sweeping.ground(tmp_path, time_scale=2.0) as ground:
        rehearsing.patch(ground.folder)
        outcome = ground.run(asked)
    statuses = {r.arm: (r.status, r.findings) for r in outcome.records}
    assert all(status == "ok" for status, _ in statuses.values()), statuses
    answers = outcome.report.comparison.what_if
    assert answers is not None
    needed = {n.metric: n.accept_length for n in answers.needed}
    arm = pretending(2)
    wanted = truth.step_s(arm, users) / truth.base_step_s(users)
    assert needed["user_tok_s"] == pytest.approx(wanted, rel=0.02)
    (card,) = [e for e in answers.expected if e.metric == "user_tok_s"]
    true = forecast(pretending(2.6), users, tokens, 4)
    assert card.value == pytest.approx(true.user_tok_s, rel=0.02)
    text = outcome.report.markdown
    assert text.index("MADE UP (simulated acceptance)") < 100
    assert "## What if" in text
