"""Reads the events of a torch profiler's trace: gzipped JSON of any size, in bounded memory."""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Union

from infra.agent.ahead import ahead
from infra.agent.refusal import Refusal

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
# How Kineto writes an event (output_json.cpp): two spaces in, each brace on a line of its own.
# No string of JSON holds a line break, so that this is where an event or the array ends, and
# nothing else is.
_KINETO = re.compile(rb"\s*?\n  \{\n")
_EVENT_BEGIN = b"\n  {"
_EVENT_END = b"\n  }"
_ARRAY_END = b"\n  ]"
_CATEGORY = re.compile(rb'"cat": "([a-z_]+)"')
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_GPU_MARKS = (b'"cat": "kernel"', b'"cat": "gpu_mem')
# A GPU event in that layout, its numbers in Kineto's own order; a block in which any looks
# otherwise is read event by event, as JSON, which takes four times as long.
_QUICK = re.compile(
    rb'"cat": "(kernel|gpu_memcpy|gpu_memset)", "name": "([^"\\]*)", "pid": \d+, "tid": \d+,\s*'
    rb'"ts": (\d+)\.(\d{3}), "dur": (\d+)\.(\d{3}),\s*"args": \{\s*(?:"[A-Za-z ]+": \d+,\s*)*?'
    rb'"device": (\d+), "context": \d+,\s*"stream": (\d+), "correlation": (\d+)'
    rb'(?:[^{}]*"graph id": (\d+))?[^{}]*\}'
)
# What else is wanted: ranges, and those calls of CUDA that launch something.
_SLOW = re.compile(
    rb'"cat": "(?:user_annotation"|cuda_(?:runtime|driver)", "name": "[^"]*(?:Launch|Memcpy|Memset))'
)
_READ = 1 << 20
_OUT = 8 << 20
_HEAD_MOST = 64 << 20
_EVENT_MOST = 32 << 20


class Quick(NamedTuple):
    """GPU events of one block, as the texts that stand in it."""

    rows: list[tuple[bytes, ...]]
    """(category, name, whole and thousandths of start, the same of length, device, stream,
    correlation, graph id or nothing)"""


Item = Union[Quick, bytes, dict[str, Any]]
"""GPU events at once; or one event, as text that lacks but its last brace, or as an object."""


class Reading:
    """One pass over a trace file."""

    def __init__(self, path: str, wanted: frozenset[bytes]) -> None:
        self._path = path
        self._wanted = wanted
        self.seen = 0
        self.bytes = 0
        self.whole = False
        self._torn = False

    def events(self) -> Iterator[Item]:
        """The events of the categories that are wanted.

        Raises:
            Refusal: ``bad_trace``.
        """
        pieces = self._unpacked()
        head = b""
        for piece in pieces:
            head += piece
            found = _EVENTS.search(head)
            if found is not None and len(head) > found.end() + 64:
                break
            if len(head) > _HEAD_MOST:
                raise Refusal("bad_trace", f"{self._path}: no traceEvents in its beginning")
        found = _EVENTS.search(head)
        if found is None:
            if self._torn:
                return
            raise Refusal("bad_trace", f"{self._path}: no traceEvents")
        rest = head[found.end() :]
        ways = self._by_line if _KINETO.match(rest) else self._by_brace
        yield from ways(rest, pieces)
        for _ in pieces:  # to its end: a torn stream is to be known
            pass
        self.whole = self.whole and not self._torn

    def _unpacked(self) -> Iterator[bytes]:
        """The file's bytes, unpacked; a torn stream ends early and is remembered as torn."""
        with open(self._path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if not packed:
                for data in iter(lambda: file.read(_OUT), b""):
                    self.bytes += len(data)
                    yield data
                return
            for data in ahead(self._inflated(iter(lambda: file.read(_READ), b""))):
                self.bytes += len(data)
                yield data

    def _inflated(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        stream = zlib.decompressobj(31)
        try:
            for block in blocks:
                left = block
                while left:
                    if stream.eof:  # the next member of the file
                        stream = zlib.decompressobj(31)
                    data = stream.decompress(left, _OUT)
                    left = stream.unused_data if stream.eof else stream.unconsumed_tail
                    if data:
                        yield data
        except zlib.error:
            self._torn = True
            return
        self._torn = not stream.eof

    def _by_line(self, rest: bytes, pieces: Iterator[bytes]) -> Iterator[Item]:
        """Events as Kineto lays them out; most are let go by unread."""
        while True:
            cut = rest.rfind(_EVENT_END) + len(_EVENT_END)
            block, rest = (rest[:cut], rest[cut:]) if cut >= len(_EVENT_END) else (b"", rest)
            end = block.find(_ARRAY_END)
            block = block if end < 0 else block[:end]
            self.seen += block.count(_EVENT_END)
            yield from self._block(block)
            if end >= 0 or rest.lstrip(b",\r\n\t ")[:1] == b"]":
                self.whole = True
                return
            if len(rest) > _EVENT_MOST:
                raise Refusal("bad_trace", f"{self._path}: an event without an end")
            piece = next(pieces, None)
            if piece is None:
                return
            rest += piece

    def _block(self, block: bytes) -> Iterator[Item]:
        """The events of a block of whole ones."""
        rows = _QUICK.findall(block)
        if len(rows) != sum(map(block.count, _GPU_MARKS)):
            for text in block.split(_EVENT_END):
                found = _CATEGORY.search(text)
                if found is not None and found[1] in self._wanted:
                    yield text
            return
        if rows:
            yield Quick(rows)
        for found in _SLOW.finditer(block):
            begin = max(0, block.rfind(_EVENT_BEGIN, 0, found.start()))
            yield block[begin : block.find(_EVENT_END, found.end())]

    def _by_brace(self, rest: bytes, pieces: Iterator[bytes]) -> Iterator[Item]:
        """Events in any other layout, such as that of a trace that was written anew."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        scan = json.JSONDecoder(parse_float=str).raw_decode
        text, at = decoder.decode(rest), 0
        skip = re.compile(r"[\s,]*")
        while True:
            found = skip.match(text, at)
            at = found.end() if found else at
            if text[at : at + 1] == "]":
                self.whole = True
                return
            try:
                event, at = scan(text, at)
            except ValueError as fault:
                if len(text) - at > _EVENT_MOST:
                    raise Refusal("bad_trace", f"{self._path}: {fault}") from fault
                piece = next(pieces, None)
                if piece is None:
                    return
                text, at = text[at:] + decoder.decode(piece), 0
                continue
            self.seen += 1
            if isinstance(event, dict) and str(event.get("cat")).encode() in self._wanted:
                yield event
