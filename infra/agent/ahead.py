"""The next piece is made while the last one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Union

_MOST = 2  # pieces that wait
_LOOK_S = 0.1


def ahead(pieces: Iterator[bytes]) -> Generator[bytes, None, None]:
    """The same pieces, made by a thread of their own: unpacking lets the interpreter go.

    Raises:
        BaseException: Whatever making them raised, in its place.
    """
    line: queue.Queue[Union[bytes, BaseException, None]] = queue.Queue(_MOST)
    over = threading.Event()

    def hand(what: Union[bytes, BaseException, None]) -> None:
        while not over.is_set():
            try:
                line.put(what, timeout=_LOOK_S)
            except queue.Full:
                continue
            return

    def make() -> None:
        try:
            for piece in pieces:
                hand(piece)
                if over.is_set():
                    return
        except BaseException as fault:
            hand(fault)
            return
        hand(None)

    threading.Thread(target=make, daemon=True).start()
    try:
        while True:
            piece = line.get()
            if piece is None:
                return
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        over.set()
