"""What a sweep measures on the pretend host is what is true there, within two percent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from infra.rehearsal import truth
from tests import rehearsing, sweeping

if TYPE_CHECKING:
    from tasks.record import Measurement

pytestmark = [pytest.mark.slow, pytest.mark.alone]  # real time against the truth

_TOKENS = 256
_USERS = 2
_DRAFTERS = {
    "base": None,
    "tuned": "k25-tuned",
    "custom": "k25-custom",
    "medai": "aq-medai-k2-drafter",
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measurement]:
    # Half the truth's time: this machine's own milliseconds then count twice, not eight times.
    with sweeping.ground(tmp_path_factory.mktemp("truth"), time_scale=2.0) as ground:
        rehearsing.patch(ground.folder)
        asked = sweeping.sweep(
            "truth", arms="+".join(_DRAFTERS), patches="", tokens=_TOKENS, per_slot=2
        )
        outcome = ground.run(asked)
    return {record.arm: record.measurements[0] for record in outcome.records}


def expected(arm: str) -> truth.Truth:
    drafter = _DRAFTERS[arm]
    setting = truth.Arm()
    if drafter is not None:
        shares = truth.chain(truth.DRAFTERS[drafter], 3, 1, 4)
        setting = truth.Arm(True, shares, 3, 1, 4)
    return truth.expected(setting, _USERS, _TOKENS)


def close(value: Any) -> Any:
    return pytest.approx(value, rel=0.02)


def accepted_in_request(shares: tuple[float, ...], drafts: int) -> float:
    """Share of a request's verify steps that accept so many drafts; its last step is cut off."""
    exactly = truth.accepted_shares(shares)
    steps, hits = [0.0], [0.0]
    for left in range(1, _TOKENS):
        after = [max(0, left - 1 - accepted) for accepted in range(len(exactly))]
        steps.append(1 + sum(p * steps[n] for p, n in zip(exactly, after, strict=True)))
        now = shares[drafts - 1] if left > drafts else 0.0
        hits.append(now + sum(p * hits[n] for p, n in zip(exactly, after, strict=True)))
    return hits[-1] / steps[-1]


@pytest.mark.parametrize("arm", _DRAFTERS)
@pytest.mark.parametrize("figure", ["accept_length", "user_tok_s", "step_s", "output_tok_s"])
def test_a_figure_is_true(measured: dict[str, Measurement], arm: str, figure: str) -> None:
    assert getattr(measured[arm], figure) == close(getattr(expected(arm), figure))


@pytest.mark.parametrize("arm", [arm for arm, drafter in _DRAFTERS.items() if drafter])
def test_acceptance_by_position_is_true(measured: dict[str, Measurement], arm: str) -> None:
    shares = expected(arm).accept_at
    wanted = [accepted_in_request(shares, drafts) for drafts in (1, 2, 3)]
    assert measured[arm].accept_at_k == close(tuple(wanted))
