"""How far a sweep is, as a progress artifact on its flow run's page."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from flows.prefect_stages import Bar
from flows.watched import Watched
from tasks.spans import span

if TYPE_CHECKING:
    from flows.watched import View
    from infra.store import RunFolder

_PAUSE_S: Final = 5.0


class SweepBar:
    """The progress of one run; reads the run folder, as `eagle3-sweep watch` does."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._watched: Watched | None = None
        self._bar = Bar("eagle3-sweep")
        self._shown = ("", 0.0)

    def show(self) -> None:
        """Shows how far it is, if that has changed."""
        said, at = self._shown
        if not said or time.monotonic() - at >= _PAUSE_S:
            self.show_now()

    def show_now(self) -> None:
        """The same, however short ago it was shown: what stays on the page when nothing follows."""
        said, _ = self._shown
        self._watched = self._watched or Watched(self._run)
        view = self._watched.look()
        text, percent = words(view), 100.0 * len(view.done) / max(view.planned, 1)
        self._shown = (text, time.monotonic())
        if text == said:
            return
        self._bar.show(text, percent)


def words(view: View) -> str:
    """Such as ``demo-0001: 3 of 16 trials, about 2 min left; b02-base: wait_ready``."""
    left = f", about {span(view.left_s)} left" if view.left_s and view.waiting else ""
    doing = "; ".join(f"{one.trial} on {one.host}: {one.stage}" for one in view.doing)
    return f"{view.run}: {len(view.done)} of {view.planned} trials{left}" + (doing and f"; {doing}")
