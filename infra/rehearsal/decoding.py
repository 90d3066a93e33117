"""The engine's clock: which request gets how many tokens at which moment.

Steps are scheduled at absolute moments (the next one at the last one's moment plus the step's
true length), so that being late never accumulates; how late the steps really were is kept and
told, because a late engine means a late truth.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from infra.rehearsal import truth

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from infra.rehearsal.tokens import Answer

_GOLDEN = (math.sqrt(5) - 1) / 2
_PLASTIC = 0.7548776662466927
EAGER_FACTOR = 1.5
"""Cost of a step whose batch is larger than every captured graph."""
_LATE_S = 0.002
_PATIENCE = 3
"""So many prefills after its slot fell free, a request still counts as its successor."""


class Sink(Protocol):
    """Who hears of a request's progress."""

    def progress(self, request: Request) -> None:
        """Some tokens came, or the request ended."""


@dataclass(eq=False)
class Request:
    """One request in the engine.

    Attributes:
        rid: identifier.
        answer: its text.
        prompt_tokens: length of the prompt.
        cached_tokens: how many of them were in the prefix cache.
        limit: tokens to make.
        finish: finish reason at the limit, as in ``meta_info``.
        sink: who hears of it.
        phase: position in the low-discrepancy sequence of acceptance.
        done: tokens made so far.
        steps: verify steps so far.
        accepted: accepted drafts so far.
        histogram: verify steps by number of accepted drafts.
        retractions: how often it was pushed back to the queue.
        slot_free: when the slot that it takes fell free.
        due: when its prefill ends.
        arrived: when it came, in the loop's time.
        finished: whether it made its last token.
    """

    rid: str
    answer: Answer
    prompt_tokens: int
    cached_tokens: int
    limit: int
    finish: dict[str, object]
    sink: Sink
    phase: float = 0.0
    done: int = 0
    steps: int = 0
    accepted: int = 0
    histogram: list[int] = field(default_factory=list)
    retractions: int = 0
    slot_free: float = 0.0
    due: float = 0.0
    arrived: float = 0.0
    finished: bool = False


@dataclass
class Lag:
    """How far behind its schedule the engine ran.

    Attributes:
        steps: steps so far.
        late: steps that ran more than two milliseconds of wall time late.
        max_s: the latest.
    """

    steps: int = 0
    late: int = 0
    max_s: float = 0.0

    def note(self, late_s: float) -> None:
        """Count one step."""
        self.steps += 1
        self.late += late_s > _LATE_S
        self.max_s = max(self.max_s, late_s)


class Decoding:
    """The batch of one engine.

    Args:
        loop: its event loop.
        arm: what decides its speed.
        time_scale: how many times faster than the truth it runs.
        noise: this boot's factor on the step time.
        max_running: requests that run at once; the others queue.
        largest_graph: batches above it run outside the captured graphs.
        on_step: called after each decode step with (requests, tokens made, accepted).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        arm: truth.Arm,
        *,
        time_scale: float,
        noise: float,
        max_running: int,
        largest_graph: int,
        on_step: Callable[[int, int, int], None],
    ) -> None:
        self._loop, self._arm, self._scale, self._noise = loop, arm, time_scale, noise
        self._max_running, self.largest_graph = max_running, largest_graph
        self._on_step = on_step
        self.running: list[Request] = []
        self.prefilling: list[Request] = []
        self.queue: deque[Request] = deque()
        self._freed: deque[float] = deque()
        self._burst = 0.0
        self.lag = Lag()
        self.frozen = False
        self.slow_factor = 1.0
        self.last_output = -1.0
        self.on_prefill: Callable[[Request], None] = lambda _request: None
        self.on_first: Callable[[Request], None] = lambda _request: None
        self._serial = itertools.count(1)
        self.moment = 0.0
        """The true end of the step that is being given out, or of the next one."""
        self._timer: asyncio.TimerHandle | None = None
        # Reached-at-least-k thresholds: a draw u accepts as many drafts as thresholds above it.
        self._thresholds = arm.accept_at

    def busy(self) -> bool:
        """Whether any request is in the engine."""
        return self.count() > 0

    def count(self) -> int:
        """Requests in the engine, the waiting ones included."""
        return len(self.running) + len(self.prefilling) + len(self.queue)

    def step_s(self, batch: int) -> float:
        """True seconds of a step of this boot at a batch size."""
        eager = EAGER_FACTOR if batch > self.largest_graph else 1.0
        return truth.step_s(self._arm, batch) * self._noise * self.slow_factor * eager

    def submit(self, request: Request) -> None:
        """Take a request in: prefill at once if there is room, else queue."""
        request.arrived = self._loop.time()
        request.phase = (next(self._serial) * _PLASTIC) % 1
        request.histogram = [0] * (len(self._thresholds) + 1)
        request.slot_free = self._slot_free(request.arrived)
        self.queue.append(request)
        self._admit(request.arrived)
        if not self.running:
            self._sleep_to_prefill()

    def _slot_free(self, now: float) -> float:
        """When the slot of a new request fell free, or the burst that it belongs to began.

        In fast motion the client's own time between two requests would weigh ``time_scale``
        times as much as on a real host. So a prompt's time runs from the moment its slot fell
        free, as it would for a client that needs no time; one that comes much later than that
        has paused, and begins anew.
        """
        whole = _PATIENCE * truth.PREFILL_S / self._scale
        while self._freed and now - self._freed[0] > whole:
            self._freed.popleft()
        if not self.busy() and not self._freed:
            self._burst = now
        freed = self._freed.popleft() if self._freed else self._burst
        return freed if now - freed <= whole else now

    def abort(self, request: Request) -> None:
        """Forget a request whose client went away."""
        for place in (self.running, self.prefilling, self.queue):
            if request in place:
                place.remove(request)

    def retract(self, count: int) -> list[Request]:
        """Push the newest running requests back to the head of the queue."""
        victims = self.running[-count:] if count < len(self.running) else self.running[1:]
        for victim in victims:
            self.running.remove(victim)
            victim.retractions += 1
            self.queue.appendleft(victim)
        return victims

    def _admit(self, now: float) -> None:
        while self.queue and len(self.running) + len(self.prefilling) < self._max_running:
            request = self.queue.popleft()
            request.due = max(now, request.slot_free + truth.PREFILL_S / self._scale)
            self.prefilling.append(request)
            self.on_prefill(request)

    def _sleep_to_prefill(self) -> None:
        if self.prefilling:
            self.moment = min(request.due for request in self.prefilling)
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self.moment, self._tick)

    def _tick(self) -> None:
        """The moment of a step: give out its tokens, take in what is prefilled, go on."""
        self._timer = None
        if self.frozen:
            return
        now = self._loop.time()
        while self.moment <= now:
            if self.running:
                self.lag.note(now - self.moment)
                self._step()
            self._first_tokens(self.moment)
            self._admit(self.moment)
            if self.frozen:
                return
            if not self.running:
                self._sleep_to_prefill()
                return
            self.moment += self.step_s(len(self.running)) / self._scale
            now = self._loop.time()
        self._set_timer()

    def _step(self) -> None:
        made = accepted = 0
        batch = self.running
        still: list[Request] = []
        for request in batch:
            drafts = self._draw(request)
            made += drafts + 1
            accepted += drafts
            request.done += drafts + 1
            request.finished = request.done >= request.limit
            if request.finished:
                self._freed.append(self.moment)
            else:
                still.append(request)
        self.running = still
        self.last_output = self._loop.time()
        for request in batch:
            request.sink.progress(request)
        self._on_step(len(batch), made, accepted)

    def _draw(self, request: Request) -> int:
        """Accepted drafts of one request in this step, cut at its limit as 0.5.9 does."""
        if not self._arm.speculation:
            return 0
        request.phase = u = (request.phase + _GOLDEN) % 1
        drafts = 0
        for threshold in self._thresholds:
            if u >= threshold:
                break
            drafts += 1
        drafts = min(drafts, request.limit - request.done - 1)
        request.steps += 1
        request.accepted += drafts
        request.histogram[drafts] += 1
        return drafts

    def _first_tokens(self, moment: float) -> None:
        ready = [request for request in self.prefilling if request.due <= moment + 1e-9]
        for request in ready:
            self.prefilling.remove(request)
            if request.limit > 0:
                request.done += 1
            request.finished = request.done >= request.limit
            if not request.finished:
                self.running.append(request)
            self.last_output = self._loop.time()
            self.on_first(request)
            request.sink.progress(request)
