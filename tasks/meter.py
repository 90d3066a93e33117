"""Looks at what the engine itself counts, before and after each measurement."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from infra.errors import AgentRefusal
from tasks.counter_counts import Told, from_averages, from_metrics
from tasks.prometheus import read_metrics
from tasks.server_info import ServerInfo, read_server_info
from tasks.wait_ready import http, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tasks.counter_counts import Answered
    from tasks.launch import Handle
    from tasks.record import Sample
    from tasks.venue import Site

_COUNTERS_LAG_S = 2.0
_INFO, _METRICS = "/server_info", "/metrics"


class Look(NamedTuple):
    """What the engine said at one moment; None: not asked, or no answer."""

    metrics: str | None = None
    averages: tuple[float | None, ...] | None = None


class Meter:
    """The engine's own counters in one trial; what it does not have is asked for once."""

    def __init__(self, site: Site, handle: Handle, *, speculating: bool) -> None:
        self._site, self._handle = site, handle
        self._metrics = speculating
        self._averages = speculating and site.engine.kind == "sglang"  # vLLM keeps none

    def heard(self, samples: Iterable[Sample]) -> None:
        """Requests that carry their own counts make the server's average needless."""
        if any(sample.verify_steps is not None for sample in samples):
            self._averages = False

    def questions(self) -> tuple[tuple[str, str, str | None], ...]:
        """What the engine is to be asked after the flush and before the first request."""
        asked = {_INFO: self._averages, _METRICS: self._metrics}
        return tuple(("GET", path, None) for path, wanted in asked.items() if wanted)

    def before(self, said: Sequence[Mapping[str, Any]]) -> Look:
        """From the answers to `questions`, as far as they came."""
        known = dict(zip((path for _, path, _ in self.questions()), said, strict=False))
        metrics = self._metrics_in(known.get(_METRICS))
        engine = self._site.engine.kind
        counted = metrics is not None and read_metrics(metrics, engine).drafts is not None
        info = known.get(_INFO, {})
        if counted or info.get("status") is None:
            return Look(metrics)
        return Look(
            metrics, read_server_info(info["body"], status=info["status"]).accept_len_by_rank
        )

    def after(self, before: Look, answered: Answered, info: ServerInfo) -> Told:
        """Counts of what ran since ``before``, where the engine has any.

        Args:
            before: the earlier look.
            answered: what our requests show.
            info: the server's account of itself after the last request.
        """
        verified = info.num_draft_tokens
        if before.metrics is not None:
            metrics = self._settled(before.metrics, answered)
            if metrics is None:
                return Told(remarks=("/metrics gave no answer after the measurement",))
            engine = self._site.engine.kind
            told = from_metrics(before.metrics, metrics, engine, answered, verified)
            if told != Told():
                return told
        if before.averages is None:
            return Told()
        return from_averages(before.averages, info.accept_len_by_rank, answered, verified)

    def info(self) -> ServerInfo:
        """The server's account of itself now; an empty one where it gives none."""
        try:
            return read_settings(self._site, self._handle)[0]
        except AgentRefusal as refusal:
            return ServerInfo(error=str(refusal))

    def _settled(self, before: str, answered: Answered) -> str | None:
        """The later answer, once the engine has counted all of our tokens or will not."""
        deadline = time.monotonic() + _COUNTERS_LAG_S
        while True:
            metrics = self._read_metrics()
            if metrics is None or time.monotonic() > deadline:
                return metrics
            engine = self._site.engine.kind
            seen = read_metrics(metrics, engine, before=before).generation_tokens
            if seen is None or seen >= answered.tokens:
                return metrics
            time.sleep(0.1)

    def _read_metrics(self) -> str | None:
        if not self._metrics:
            return None
        try:
            answer = http(self._site, self._handle, "GET", _METRICS)
        except AgentRefusal:
            return None
        return self._metrics_in(answer)

    def _metrics_in(self, answer: Mapping[str, Any] | None) -> str | None:
        if answer is None or answer.get("status") is None:
            return None
        if answer["status"] != 200:
            self._metrics = False  # not enabled: no error, and not asked for again
            return None
        return str(answer["body"])
