"""Reads process lists: what ``ps -eo …`` prints, and what the host agent reports."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tasks.foreign_json import count, rows, words

if TYPE_CHECKING:
    from collections.abc import Sequence

PS_COLUMNS = ("pid", "ppid", "pgid", "sid", "user", "stat", "lstart", "comm", "args")

#: ps works a start time out from the boot time anew each time, so that it may move by a second.
LSTART_SLACK_S = 2.0
COMM_WIDTH = 15

_PS_FORMAT = re.compile(r"(?:-o|o|--format)[ =]?\s*([\w%]+(?:[,=][\w%]+)*)")
_LSTART = re.compile(r"\s*([A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4})")
_TOKEN = re.compile(r"\s*(\S+)")
#: Names of engine processes, as they title themselves (setproctitle) or were started.
ENGINE_TITLES = re.compile(
    r"sglang::|VLLM::|sglang\.launch_server|\bsglang serve\b|\bvllm serve\b|vllm\.entrypoints"
)
_HEADS = {"command": "args", "cmd": "args", "s": "stat", "state": "stat", "started": "lstart"}


@dataclass(frozen=True)
class Process:
    """One process. ``start`` makes the pid an identity: ticks since boot, or ps's start time."""

    pid: int
    ppid: int | None = None
    pgid: int | None = None
    sid: int | None = None
    uid: int | None = None
    user: str | None = None
    state: str = "?"
    start: int | str | None = None
    comm: str = ""
    args: str = ""
    marker: str | None = None

    @property
    def zombie(self) -> bool:
        """Dead but not collected by its parent: holds no memory, needs no signal."""
        return self.state[:1] in ("Z", "X")

    @property
    def engine(self) -> bool:
        """Whether it names itself like a part of SGLang or vLLM."""
        return ENGINE_TITLES.search(f"{self.comm} {self.args}") is not None


def same_start(one: int | str | None, other: int | str | None) -> bool | None:
    """Whether two start times are the same moment; None if one is unknown or they cannot compare."""
    if one is None or other is None:
        return None
    if type(one) is type(other) and one == other:
        return True
    if isinstance(one, int) and isinstance(other, int):
        return False
    first, second = _moment(one), _moment(other)
    if first is None or second is None:
        return None
    return abs((first - second).total_seconds()) <= LSTART_SLACK_S


def started_before(one: int | str | None, other: int | str | None) -> bool:
    """Whether one surely started before the other."""
    if isinstance(one, int) and isinstance(other, int):
        return one < other
    first, second = _moment(one), _moment(other)
    if first is None or second is None:
        return False
    return (second - first).total_seconds() > LSTART_SLACK_S


def _moment(start: int | str | None) -> datetime | None:
    if not isinstance(start, str):
        return None
    try:
        # ps prints local time and no zone (DTZ007).
        return datetime.strptime(" ".join(start.split()), "%a %b %d %H:%M:%S %Y")  # noqa: DTZ007
    except ValueError:
        return None


def ps_columns(command: str) -> tuple[str, ...] | None:
    """The columns that a ``ps -eo …`` command line asks for, or None."""
    found = _PS_FORMAT.search(command.replace("ps -eo", "ps -o"))
    return tuple(name.split("=")[0] for name in found[1].split(",")) if found else None


def read_ps(text: str, columns: Sequence[str] = PS_COLUMNS) -> tuple[Process, ...]:
    """The processes in the output of ``ps -eo …``; lines that are none are left out.

    A header line, if there is one, tells the columns. ``comm`` is cut to 15 characters and may
    hold spaces; ``args`` is whatever follows.
    """
    names = [_column(name) for name in columns]
    processes = []
    for line in text.splitlines():
        first = line.split(maxsplit=12)
        if "PID" in first and not first[0].isdigit():
            names = _header(line)
            continue
        fields = _fields(line, names)
        if fields is not None and (pid := count(fields.get("pid"))) is not None:
            processes.append(_process(pid, fields))
    return tuple(processes)


def read_facts(listed: object) -> tuple[Process, ...]:
    """The processes in the host agent's ``facts``: a list of objects with ``pid`` and so on."""
    processes = []
    for row in rows(listed):
        pid = count(row.get("pid"))
        if pid is None:
            continue
        processes.append(
            Process(
                pid=pid,
                ppid=count(row.get("ppid")),
                pgid=count(row.get("pgid")),
                sid=count(row.get("sid")),
                uid=count(row.get("uid")),
                user=words(row.get("user")),
                state=words(row.get("state")) or "?",
                start=count(row.get("start_ticks")),
                comm=words(row.get("comm")) or "",
                args=words(row.get("args")) or "",
                marker=words(row.get("marker")),
            )
        )
    return tuple(processes)


def _column(name: str) -> str:
    name = name.strip().lower()
    return _HEADS.get(name, name)


def _header(line: str) -> list[str]:
    names = [_column(word) for word in line.split()]
    if names.count("args") > 1:  # ps heads comm and args alike
        names[names.index("args")] = "comm"
    return names


def _fields(line: str, names: Sequence[str]) -> dict[str, str] | None:
    fields: dict[str, str] = {}
    at = 0
    for number, name in enumerate(names):
        if name == "args" or (name == "comm" and number == len(names) - 1):
            fields[name] = line[at:].strip()
            break
        if name == "comm":
            fields[name], at = _comm(line, at)
            continue
        found = (_LSTART if name == "lstart" else _TOKEN).match(line, at)
        if found is None:
            return None
        fields[name], at = found[1], found.end()
    return fields


def _comm(line: str, at: int) -> tuple[str, int]:
    """The command name: a padded column of 15, or one word where the padding was lost."""
    rest = line[at:].removeprefix(" ")
    start = len(line) - len(rest)
    padded = rest[: COMM_WIDTH + 1]
    if len(padded) > COMM_WIDTH and padded[COMM_WIDTH] == " " and not padded.startswith(" "):
        return padded.strip(), start + COMM_WIDTH
    found = _TOKEN.match(line, at)
    return (found[1], found.end()) if found else ("", len(line))


def _process(pid: int, fields: dict[str, str]) -> Process:
    user = fields.get("user") or fields.get("euser")
    return Process(
        pid=pid,
        ppid=count(fields.get("ppid")),
        pgid=count(fields.get("pgid")),
        sid=count(fields.get("sid")),
        uid=count(fields.get("uid") or fields.get("euid")),
        user=user,
        state=fields.get("stat", "?"),
        start=fields.get("lstart"),
        comm=fields.get("comm", ""),
        args=fields.get("args", ""),
    )
