"""Stages as Prefect tasks: the same policy, each a row of the same name in Prefect's UI."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from prefect.states import Failed

from flows.stages import PASSING, policy_of, timed
from tasks.venue import StageFailedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from prefect.client.schemas.objects import State

    from tasks.record import StageTime

T = TypeVar("T")

_QUIET_S = 2.0  # a log line costs the API 1.5 ms, and nobody reads a hundred of them


@dataclass
class _Box(Generic[T]):
    """What a task's body left; a task hands a state back, not these."""

    result: list[T] = field(default_factory=list)
    failed: StageFailedError | None = None


class Bar:
    """A progress artifact, made when there is something to show.

    Args:
        key: Of the artifact.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._id: UUID | None = None

    def show(self, text: str, percent: float) -> None:
        """Makes it, or brings it up to date."""
        known = self._id
        if known is None:
            self._id = shown(
                lambda: create_progress_artifact(progress=percent, key=self._key, description=text)
            )
        else:
            shown(lambda: update_progress_artifact(known, progress=percent, description=text))


class PrefectRunner:
    """Runs stages as tasks, in the main thread: a submitted task could not be cancelled.

    Nothing is cached or persisted (a stage works on a host), and the live hand on the host never
    crosses the task's boundary: the task has no parameters.
    """

    def __init__(self, trial: str) -> None:
        self.times: list[StageTime] = []
        self._trial = trial
        self._stage = ""
        self._said = ("", 0.0)
        self._bar = Bar("start")

    def run(self, name: str, work: Callable[[], T]) -> T:
        """See flows.stages.Runner."""
        self._stage = name
        policy = policy_of(name)
        box = _Box[T]()

        def body() -> State[Any] | None:
            try:
                box.result.append(work())
            except StageFailedError as error:
                # A known failure is a result: shown in red with its words, without a traceback.
                box.failed = error
                return Failed(message=str(error)[:1000])
            return None

        stage = task(
            name=name,
            task_run_name=f"{name} {self._trial}",
            retries=policy.retries,
            retry_delay_seconds=policy.pause_s,
            retry_condition_fn=_passing,
            cache_policy=NO_CACHE,
            persist_result=False,
        )(body)
        return timed(self.times, name, lambda: self._call(stage, box))

    def _call(self, stage: Callable[[], Any], box: _Box[T]) -> T:
        # A task that hands a failed state back either raises for it or does not, by its retries.
        try:
            stage()
        except Exception:
            if box.failed is None:
                raise
        if box.failed is not None:
            raise box.failed
        return box.result[-1]

    def say(self, text: str) -> None:
        """Logs what changed, at most every two seconds; the engine's start is a progress bar."""
        percent = _percent(text)
        if percent is not None and self._stage == "wait_ready":
            self._show(text, percent)
        last, at = self._said
        if text == last or time.monotonic() - at < _QUIET_S:
            return
        self._said = (text, time.monotonic())
        get_run_logger().info("%s %s: %s", self._trial, self._stage, text)

    def _show(self, text: str, percent: float) -> None:
        """Progress of the model's load as a Prefect artifact."""
        if time.monotonic() - self._said[1] < _QUIET_S:
            return
        self._bar.show(f"{self._trial}: {text}", percent)


def shown(work: Callable[[], Any]) -> Any:
    """Shows something in Prefect; a server that is away costs that, and never the trial."""
    try:
        made = work()
    except Exception as error:  # noqa: BLE001 - Prefect's, httpx's and OS errors come through alike
        get_run_logger().warning("not shown in Prefect: %s", str(error) or type(error).__name__)
        return None
    return None if hasattr(made, "__await__") else made


def _passing(_task: object, _run: object, state: Any) -> bool:
    """Whether a failed stage may be tried again: the world's passing faults alone."""
    return isinstance(state.result(raise_on_failure=False), PASSING)


def _percent(text: str) -> float | None:
    words = text.split()
    if len(words) > 1 and words[-1] == "%" and words[-2].isdigit():
        return float(words[-2])
    return None
