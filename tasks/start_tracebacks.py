"""Tracebacks and last words in a log, from many processes at once: which one came first."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tasks.failures import ECHO, Failure, Match, Scene, classify, failure_from, failure_of, row
from tasks.start_clues import (
    CHAIN,
    EXCEPTION,
    FATAL_HEAD,
    FRAME,
    HARMLESS_HEAD,
    LINE_HEADS,
    REQUEST_LOG,
    THROWN,
    TRACEBACK,
    rank_of,
    stage_of,
)

if TYPE_CHECKING:
    from tasks.log_lines import LogLine

_MAX_SURE, _MAX_UNSURE, _MAX_OPEN, _MAX_FRAMES, _MAX_TAIL = 64, 32, 256, 40, 8


class Setting(NamedTuple):
    """Where the start stood when a line was written.

    Attributes:
        scene: The stage and what the server's arguments said.
        serving: The server had been ready; a request's traceback is then no proof of its end.
        last_progress_at: The log's time of the last sign of work.
    """

    scene: Scene
    serving: bool = False
    last_progress_at: str | None = None


@dataclass
class _Witness:
    """One traceback or last word, while it is read and after."""

    source: str
    stage: str
    last_progress_at: str | None
    sure: bool
    stamp: str | None = None
    frames: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_FRAMES))
    in_frames: bool = True
    text: list[str] = field(default_factory=list)
    root: str | None = None
    match: Match | None = None
    match_line: str | None = None
    exceptions: int = 0
    match_of: int | None = None
    match_text: str = ""
    stage_of_root: str | None = None
    kept: bool = False


class TracebackScan:
    """Reads a log's lines and names the first cause of a failure.

    Processes write at once: eight ranks with one cause are one failure, and a rank that only
    lost its peer is an echo. A traceback under a harmless heading is none; one of unknown
    weight (a request's) counts only when the engine also ended.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Witness] = {}
        self._witnesses: list[_Witness] = []
        self._heads: dict[str, tuple[str, str]] = {}
        self._current = ""
        self._sure = self._unsure = 0
        self._echo: str | None = None

    @property
    def ended(self) -> bool:
        """The log says that the engine went down."""
        return self._echo is not None

    def feed(self, line: LogLine, setting: Setting) -> bool:
        """Read one line; tell whether it belongs to a failure (and is no sign of work)."""
        source = line.source if line.framed else self._current
        if line.framed:
            self._current = source
            if line.stamp is not None and line.stamp[4:5] == "-":
                self._open.pop(source, None)
        witness = self._open.get(source)
        position = line.text.find(TRACEBACK)
        if position >= 0 and not REQUEST_LOG.match(line.text):
            return self._begin(line, position, source, setting)
        if witness is not None and self._continue(witness, line, setting.scene):
            return True
        self._heads[source] = (line.level, line.text[:200])
        if len(self._heads) > _MAX_OPEN:
            self._heads.clear()
        return self._last_word(line, source, setting)

    def verdict(self, *, ended: bool = False) -> Failure | None:
        """Name the first cause so far; None where nothing failed.

        Args:
            ended: The engine's process is known to have ended.
        """
        known = [witness for witness in self._witnesses if witness.root is not None]
        sure = [witness for witness in known if witness.sure]
        if sure:
            return _failure(sure[0], sure)
        if not (ended or self.ended):
            return None
        if known:
            return _failure(known[0], known)
        cut = [one for one in self._witnesses if one.sure and one.exceptions == 0]
        if cut:
            at = cut[0].frames[-1] if cut[0].frames else "its first line"
            return failure_of(
                "unknown_exception",
                root_line=f"traceback cut off at {at}",
                stage=cut[0].stage,
                first_failing_rank=rank_of(cut[0].source),
            )
        return None if self._echo is None else _only_echo(self._echo)

    def _begin(self, line: LogLine, position: int, source: str, setting: Setting) -> bool:
        scene = setting.scene
        witness = self._open.get(source)
        if witness is not None and (not line.framed or position == 0) and self._chained(witness):
            witness.in_frames = True
            return True
        head = line.text[:position].strip()
        if not head:
            level, before = self._heads.get(source, ("", ""))
            relevant = level == "ERROR" or FATAL_HEAD.search(before) or HARMLESS_HEAD.search(before)
            head = before if relevant else ""
        if HARMLESS_HEAD.search(head):
            self._open.pop(source, None)
            self._open[source] = _Witness(source, scene.stage or "", None, sure=False)
            return False
        sure = bool(FATAL_HEAD.search(head)) if head else not setting.serving
        witness = _Witness(source, scene.stage or "", setting.last_progress_at, sure, line.stamp)
        if len(self._open) >= _MAX_OPEN:
            self._open.clear()
        self._open[source] = witness
        self._admit(witness)
        match = classify(head, scene, line=True) if head else None
        if match is not None:
            witness.root = witness.match_line = line.text[:300]
            witness.match = match
        return True

    def _chained(self, witness: _Witness) -> bool:
        return witness.in_frames or any(part.startswith(CHAIN) for part in witness.text[-1:])

    def _continue(self, witness: _Witness, line: LogLine, scene: Scene) -> bool:
        """Read a line of an open traceback; False where it is not part of it."""
        if line.framed and (line.stamp != witness.stamp or line.level not in ("", "ERROR")):
            del self._open[witness.source]
            return False
        if witness.in_frames:
            if frame := FRAME.match(line.text):
                path = "/".join(frame["path"].split("/")[-2:])
                witness.frames.append(f"{path} in {frame['function']}")
            elif not line.text.startswith(" ") and EXCEPTION.match(line.text):
                witness.in_frames = False
                witness.text = [line.text]
                witness.exceptions += 1
                self._judge(witness, scene)
            return True
        if len(witness.text) > _MAX_TAIL:
            del self._open[witness.source]
            return False
        witness.text.append(line.text)
        if not line.text.startswith(CHAIN):
            self._judge(witness, scene)
        return True

    def _judge(self, witness: _Witness, scene: Scene) -> None:
        """Classify the exception that was read last; the first in a chain that fits is kept."""
        if not (witness.sure or witness.kept):
            return
        text = "\n".join(witness.text)
        if ECHO.search(text):
            # vLLM's front end says in the traceback of any request that the core is dead.
            if witness.sure or "EngineDeadError" in text:
                self._echo = self._echo or witness.text[0]
            return
        frames = "\n".join(witness.frames)
        if witness.root is None:
            witness.root = witness.text[0]
            witness.stage_of_root = stage_of(frames, witness.stage)
        # Whose path or file it is may show only in the frames of a later link of the chain, and
        # the reason only on a line after the class (pydantic): so look again as it grows.
        if witness.match is not None and witness.match_of not in (None, witness.exceptions):
            text = witness.match_text
        stage = stage_of(frames, witness.stage)
        match = classify(text, scene._replace(frames=frames, stage=stage))
        if match is not None and (witness.match is None or witness.match_of is not None):
            if witness.match_of is None:
                witness.match_of = witness.exceptions
            witness.match, witness.match_text = match, text
            witness.match_line = text.split("\n", 1)[0]

    def _last_word(self, line: LogLine, source: str, setting: Setting) -> bool:
        scene = setting.scene
        if self._witnesses and line.text.startswith("Exit code:"):
            return self._exit_code(self._witnesses[-1], line, scene)
        told = line.level == "ERROR" or EXCEPTION.match(line.text)
        if ECHO.match(line.text) or (told and ECHO.search(line.text)):
            if not REQUEST_LOG.match(line.text):
                self._echo = self._echo or line.text[:300]
                return True
            return False
        if thrown := THROWN.match(line.text):
            return self._thrown(thrown[1], source, setting)
        if not LINE_HEADS.match(line.text) or REQUEST_LOG.match(line.text):
            return False
        match = classify(line.text, scene, line=True)
        if match is None:
            return False
        witness = _Witness(source, scene.stage or "", setting.last_progress_at, sure=True)
        witness.root = witness.match_line = line.text[:300]
        witness.match = match
        witness.in_frames = False
        self._admit(witness)
        return True

    def _thrown(self, text: str, source: str, setting: Setting) -> bool:
        """Read the `what():` of a C++ exception that nobody caught; the process aborts on it."""
        if ECHO.search(text):
            self._echo = self._echo or text[:300]
            return True
        witness = _Witness(source, setting.scene.stage or "", setting.last_progress_at, sure=True)
        witness.root = witness.match_line = text[:300]
        witness.match = classify(text, setting.scene) or Match(row("native_crash"), None, {})
        witness.exceptions = 1
        self._admit(witness)
        return True

    def _exit_code(self, witness: _Witness, line: LogLine, scene: Scene) -> bool:
        """Join `Rank 0 scheduler is dead.` and the `Exit code: -9` that follows it."""
        if witness.root is not None and witness.match == classify(witness.root, scene, line=True):
            joined = classify(f"{witness.root}\n{line.text}", scene, line=True)
            witness.match = joined or witness.match
        return True

    def _admit(self, witness: _Witness) -> None:
        if witness.sure and self._sure < _MAX_SURE:
            self._sure += 1
            witness.kept = True
            self._witnesses.append(witness)
        elif not witness.sure and self._unsure < _MAX_UNSURE:
            self._unsure += 1
            witness.kept = True
            self._witnesses.append(witness)


def _only_echo(text: str) -> Failure:
    """Name what the last word of a survivor tells by itself: the exit codes of the others."""
    match = classify(text, Scene(), line=True)
    if match is None:
        return failure_of("engine_dead", root_line=text)
    return failure_from(match, root_line=text)


def _failure(first: _Witness, all_of_them: list[_Witness]) -> Failure:
    match = first.match or Match(row("unknown_exception"), None, {})
    ranks = dict.fromkeys(rank for one in all_of_them if (rank := rank_of(one.source)))
    return failure_from(
        match,
        stage=first.stage_of_root or first.stage or None,
        root_line=(first.match_line or first.root or "")[:500],
        first_failing_rank=rank_of(first.source),
        failing_ranks=tuple(ranks),
        last_progress_at=first.last_progress_at,
    )
