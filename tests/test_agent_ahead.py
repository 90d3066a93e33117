"""Pieces made ahead are the same pieces, in order, and whoever stops early leaves no thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from infra.agent.ahead import ahead
from tests.agent_host import until

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_all_pieces_come_in_order():
    assert [*ahead(iter([b"%d" % n for n in range(1000)]))] == [b"%d" % n for n in range(1000)]
    assert [*ahead(iter([]))] == []


def test_a_fault_comes_in_its_place():
    def broken() -> Iterator[bytes]:
        yield b"one"
        raise ValueError("torn")

    pieces = ahead(broken())
    assert next(pieces) == b"one"
    with pytest.raises(ValueError, match="torn"):
        next(pieces)


def test_no_more_than_a_few_are_made_ahead_and_the_thread_goes_with_its_reader():
    made: list[int] = []

    def endless() -> Iterator[bytes]:
        while True:
            made.append(1)
            yield b"x"

    before = threading.active_count()
    pieces = ahead(endless())
    next(pieces)
    until(lambda: len(made) >= 3)
    pieces.close()
    until(lambda: threading.active_count() == before)
    assert len(made) <= 5
