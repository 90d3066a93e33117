"""One model over two hosts, over real SSH: what a trial does on both, and what it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import noding, sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.conduct import Outcome
    from tests.noding import Two


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    with noding.two(tmp_path_factory.mktemp("nodes")) as made:
        yield made


@pytest.fixture(scope="module")
def outcome(two: Two) -> Outcome:
    return two.run(noding.joint(sweeping.sweep("joint", arms="base+tuned")))


def test_a_model_over_two_hosts_is_measured(outcome: Outcome) -> None:
    assert {record.status for record in outcome.records} <= sweeping.MEASURED, [
        record.failure for record in outcome.records
    ]
    tuned = next(record for record in outcome.records if record.arm == "tuned")
    (measured,) = tuned.measurements
    assert measured.accept_length == pytest.approx(2.86, rel=0.15)
    assert tuned.host == "node0+node1"
