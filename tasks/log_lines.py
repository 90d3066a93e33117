"""An engine's log as it arrives: bytes in any chunks become lines with time, rank and text."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

# A `server_args=` line is about 12 kB; what is longer is a logged prompt or a dump.
MAX_LINE_BYTES = 32_768

# vLLM prints no year; a leap year lets every day be read.
YEARLESS = 2000

_ENDS = (b"\n", b"\r")
_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_UNDECODABLE = re.compile("[\udc80-\udcff]")

# `[2026-03-04 09:12:01 DP0 TP2] text`; ranks only where their group is larger than one
# (sglang 0.5.9 scheduler.py:3081, 0.5.23 scheduler.py:6279).
_SGLANG = re.compile(
    r"\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)(?P<ranks>(?: [A-Z][A-Z_]*\d+)*)\] ?"
)
# `(EngineCore_DP0 pid=88) `, `(VllmWorker rank=1 pid=7) `, `(RayWorkerWrapper pid=7, ip=10.0.0.2) `.
_VLLM_PROCESS = re.compile(r"\((?P<name>[A-Za-z]\w*)(?:,? \w+=[^\s,()]{1,60}){1,4}\) ?")
_RANK_ARGUMENT = re.compile(r" rank=(\d+)")
# `INFO 05-02 08:00:01 [api_server.py:1896] ` and, before 0.8.3, `INFO 08-08 12:00:10 metrics.py:373] `.
_VLLM_HEADER = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)"
    r" \[?[\w./-]{1,200}:\d+\] ?"
)
# `[rank3]:[E304 09:22:01.120 ProcessGroupNCCL.cpp:2150] ` is torch's C++ side.
_TORCH_RANK = re.compile(r"\[(?P<rank>rank\d+)\]: ?")
_TORCH_HEADER = re.compile(r"\[(?P<level>[EWIF])\d{3,4} [\d:.]{8,18} [\w.]{1,80}:\d+\] ?")
# `INFO:     text` is uvicorn, `WARNING model_config.py:70: text` older sglang.
_LEVEL = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)(?::\s+| [\w./]{1,120}\.py:\d+: )"
)
_BAR = re.compile(r"\d{1,3}%(?:\||\s+Completed)")
_BAR_END = re.compile(r"(?:it/s|s/it|[kKMGT]?B/s)\]")

# The empty text is in every set of letters: a line that ends there is tried once in vain.
_LEVEL_INITIALS = "DIWEC"
_LEVELS = {"E": "ERROR", "W": "WARNING", "I": "INFO", "F": "CRITICAL"}


class LogLine(NamedTuple):
    """One line of a log without its prefixes.

    Attributes:
        stamp: The time as it was printed; vLLM prints no year. None where a line has none.
        source: Who wrote it: `TP2`, `DP0 TP2`, `EngineCore_DP0`, `rank3`; "" where it is not said.
        level: The level where it is printed, else "".
        text: The message; its leading spaces are kept, since tracebacks need them.
        framed: A log record begins here; False for continuation lines and plain prints.
        bar: The text is a progress bar.
    """

    stamp: str | None
    source: str
    level: str
    text: str
    framed: bool
    bar: bool


class LogReader:
    """Turns chunks of bytes into lines, whatever the chunks are.

    Lines end at a newline or a carriage return, so that a progress bar that is redrawn for
    ten minutes is seen while it moves. Blank lines are left out. Bytes that are not UTF-8 are
    replaced and counted in `undecodable_bytes`: strict decoding would lose every later line.
    Of a line longer than `MAX_LINE_BYTES` only the head is kept (`cut_lines` counts them), so
    memory is bounded by one line.
    """

    def __init__(self) -> None:
        self._pending = bytearray()
        self._overflow = False
        self.undecodable_bytes = 0
        self.cut_lines = 0

    def feed(self, chunk: bytes) -> list[LogLine]:
        """Take the next bytes of the log; return the lines that they complete."""
        lines: list[LogLine] = []
        for part in chunk.splitlines(keepends=True):
            if not part.endswith(_ENDS):
                self._keep(part)  # the beginning of a line
                continue
            body = part.rstrip(b"\r\n")
            if self._pending or len(body) > MAX_LINE_BYTES:
                self._keep(body)
                self._complete(lines)
            elif body:
                text, undecodable = _decode(body)
                self.undecodable_bytes += undecodable
                lines.extend(parse(text))
        return lines

    def finish(self) -> list[LogLine]:
        """Return the last line, if the log ends without a newline."""
        lines: list[LogLine] = []
        self._complete(lines)
        return lines

    def pending(self) -> list[LogLine]:
        """Return the unfinished last line without taking it: a bar's newest state is there."""
        text, _ = _decode(bytes(self._pending))
        return parse(text)

    def _keep(self, part: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._pending)
        self._overflow = self._overflow or len(part) > room
        self._pending += part[:room]

    def _complete(self, lines: list[LogLine]) -> None:
        if not self._pending:
            return
        raw = bytes(self._pending)
        if self._overflow:
            self.cut_lines += 1
            raw = _whole_characters(raw)
        text, undecodable = _decode(raw)
        self.undecodable_bytes += undecodable
        self._pending.clear()
        self._overflow = False
        lines.extend(parse(text))


def parse(text: str) -> list[LogLine]:
    """Split one physical line into its records: a bar has no newline before the next record."""
    if "%" not in text:  # no bar: most lines of a large log
        line = None if not text or text.isspace() else _record(text, bar=False)
        return [] if line is None or not line.text else [line]
    lines: list[LogLine] = []
    position = 0
    while bar := _BAR.search(text, position):
        end = _BAR_END.search(text, bar.end())
        if end is None:
            break
        lines.append(_record(text[position : end.end()], bar=True))
        position = end.end()
    rest = text[position:]
    if rest.strip():
        lines.append(_record(rest, bar=bar is not None))
    return [line for line in lines if line.text]


def moment(stamp: str | None) -> datetime | None:
    """Read a printed time; one without a year gets `YEARLESS`, good for differences only."""
    if stamp is None:
        return None
    try:
        return datetime.fromisoformat(stamp if stamp[4:5] == "-" else f"{YEARLESS}-{stamp}")
    except ValueError:
        return None


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """Seconds from one printed time to another; None if one is missing or they run backwards."""
    begin, end = moment(earlier), moment(later)
    if begin is None or end is None or (begin.year == YEARLESS) != (end.year == YEARLESS):
        return None
    elapsed = (end - begin).total_seconds()
    return elapsed if elapsed >= 0 else None


def _record(text: str, *, bar: bool) -> LogLine:
    stamp: str | None = None
    source = level = ""
    framed = False
    position = 0
    if text[0] == "(" and (process := _VLLM_PROCESS.match(text)):
        rank = _RANK_ARGUMENT.search(process.group())
        source = process["name"] + (f"_TP{rank[1]}" if rank else "")
        position, framed = process.end(), True
    first = text[position : position + 1]
    if first in _LEVEL_INITIALS and (header := _VLLM_HEADER.match(text, position)):
        stamp, level = header["stamp"], header["level"]
        position, framed = header.end(), True
    elif first == "[" and (header := _SGLANG.match(text, position)):
        stamp, source = header["stamp"], header["ranks"].strip()
        position, framed = header.end(), True
    elif first == "[" and (header := _TORCH_RANK.match(text, position)):
        source = header["rank"]
        position, framed = header.end(), True
        if torch := _TORCH_HEADER.match(text, position):
            level, position = _LEVELS[torch["level"]], torch.end()
    if text[position : position + 1] in _LEVEL_INITIALS and (plain := _LEVEL.match(text, position)):
        level, position, framed = plain["level"], plain.end(), True
    return LogLine(stamp, source, level, text[position:].rstrip(), framed, bar)


def _decode(raw: bytes) -> tuple[str, int]:
    """Decode leniently; return the text and how many bytes were not UTF-8."""
    if raw.isascii() and (text := raw.decode("ascii")).isprintable():
        return text, 0
    text = raw.decode("utf-8", "surrogateescape")
    text, undecodable = _UNDECODABLE.subn("\ufffd", text)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _CONTROL.sub("", text), undecodable


def _whole_characters(raw: bytes) -> bytes:
    """Drop a character that the cut went through, so that it is not counted as undecodable."""
    for back in range(1, min(4, len(raw)) + 1):
        lead = raw[-back]
        if lead < 0x80:
            return raw
        if lead >= 0xC0:
            width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return raw[:-back] if width > back else raw
    return raw
