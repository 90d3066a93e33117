"""Makes a screen: its run folder, the work on the host, its page and figure; then its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.nodes_rules import no_shared_screen
from configs.problems import ConfigError, Problem
from configs.screening import Screening
from configs.vllm_rules import no_screen
from flows.runs import open_run
from flows.screen import Screener, screening_question
from flows.screened import screened
from infra.store import write_bytes, write_text
from tasks.screen_figure import screen_figure
from tasks.screen_report import FIGURE, screen_page

if TYPE_CHECKING:
    from flows.outcome import Hands
    from flows.question import Question
    from infra.store import RunFolder, Store
    from tasks.screen import Screen


def make_screen(
    question: Question,
    asked: Screening,
    store: Store,
    hands: Hands,
    *,
    flow_run: str | None = None,
) -> Screen:
    """A new screen in a run folder of its own, as values, page and figure."""
    posed = screening_question(question, asked)
    with open_run(store, posed, fresh=True, flow_run=flow_run) as run:
        hands.say(
            f"run {run.id}: screens {len(question.sweep.factors[asked.factor])} levels of "
            f"{asked.factor}, {len(posed.plan.trials)} starts, folder {run.path}"
        )
        screen = Screener(posed, asked, run, hands).screen()
        write_page(run, screen)
    return screen


def screened_first(
    question: Question,
    store: Store,
    hands: Hands,
    *,
    host: str | None = None,
    flow_run: str | None = None,
) -> Question:
    """The question as its screen leaves it; makes one if the sweep wants one and none fits."""
    asked = question.sweep.screen

    def make() -> Screen:
        if asked is None:
            raise AssertionError(question.sweep.name)  # asked for only where the sweep wants it
        return make_screen(question, asked, store, hands, flow_run=flow_run)

    return screened(question, store, make, host=host)


def write_page(run: RunFolder, screen: Screen) -> None:
    """Writes screen.md and its figure beside screen.json."""
    figure = screen_figure(screen)
    if figure is not None:
        write_bytes(run.path / FIGURE, figure)
    write_text(run.path / "screen.md", screen_page(screen, figure=figure is not None))


def asked_screening(question: Question, factor: str | None, *, starts: bool) -> Screening:
    """What is to be screened: the sweep's own word, or its only factor.

    Raises:
        ConfigError: No such factor, several and none named, or arms on another engine than SGLang.
    """
    sweep = question.sweep
    if (message := no_screen(sweep) or no_shared_screen(sweep)) is not None:
        raise ConfigError([Problem(f"sweep {sweep.name}", "screen", message)])
    own = sweep.screen
    name = factor or (own.factor if own else None)
    if name is None and len(sweep.factors) == 1:
        name = next(iter(sweep.factors))
    if name not in sweep.factors:
        known = ", ".join(sweep.factors) or "none"
        what = f"no factor is called {name!r}" if name else "which factor is to be screened?"
        raise ConfigError(
            [
                Problem(
                    f"sweep {sweep.name}",
                    "factors",
                    f"{what} There are: {known}; name one with --factor",
                )
            ]
        )
    asked = own if own is not None and own.factor == name else Screening(factor=name)
    return asked if starts else asked.model_copy(update={"starts": "none"})
