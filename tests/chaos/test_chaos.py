"""Every fault of the table at every moment: what must hold, holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos import rows
from tests.chaos.table import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.table import Row


def test_every_fault_has_a_row() -> None:
    assert {one.fault for one in rows.ROWS} == set(FAULTS)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(one, id=one.id, marks=() if one.fast else pytest.mark.chaos)
        for one in rows.ROWS
    ],
)
def test_chaos(row: Row, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    reason = row.why_not()
    if reason is not None:
        pytest.skip(reason)
    record_property("held", row.play(tmp_path))
