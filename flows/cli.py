"""The command line; its commands are thin, and load what they need when they are called."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from configs.problems import ConfigError
from configs.read import read_sweep
from flows.doctor import doctor
from flows.exporting import export
from flows.finding import SweepName, find_run, mistake
from flows.history import history
from flows.inspecting import inspect
from flows.question import pose
from flows.servers import deploy, down, up
from flows.terminal import Progress, console, say
from flows.watch import watch
from infra.errors import WorldError
from infra.places import runs_folder
from infra.store import Store
from tasks.venue import StageFailedError

if TYPE_CHECKING:
    from flows.outcome import Hands, Outcome
    from flows.question import Question
    from infra.tracking import Tracker

app = typer.Typer(
    help="Does EAGLE-3 speculative decoding pay for this model on this host?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _command in (inspect, doctor, export, watch, history, up, deploy, down):
    app.command()(_command)

HostName = Annotated[str | None, typer.Option(help="another host than the sweep's, or node0+node1")]
UntilTime = Annotated[str | None, typer.Option(help='free by then: "06:30 Europe/Berlin"')]


class Stopped(BaseException):
    """SIGTERM or Ctrl-C: the trial in flight is torn down on the way out."""


@app.command()
def plan(sweep: SweepName, host: HostName = None, until: UntilTime = None) -> None:
    """Show every trial and command; with --host, ask the engine there whether it knows all flags."""
    from flows.screened import screened
    from flows.show import plan_text
    from flows.show_budget import outlook_text

    question = screened(pose(sweep, host), store := Store(runs_folder()), host=host)
    console.print(plan_text(question), outlook_text(question, store, until), sep="\n")
    if host is not None:
        from flows.installed import hold_against

        hold_against(question, sweep, say)


@app.command()
def run(
    sweep: SweepName,
    host: HostName = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="forget the latest run")] = False,
    until: UntilTime = None,
) -> None:
    """Run what is missing of a sweep, without any server; then compare and report."""
    from flows.show import verdicts_text

    outcome = _conduct(pose(sweep, host), fresh=fresh, host=host, until=until)
    console.print(verdicts_text(outcome.report.comparisons, outcome.report.sentence))
    _tell_end(outcome)


@app.command()
def screen(
    sweep: SweepName,
    host: HostName = None,
    factor: Annotated[str | None, typer.Option(help="the factor; the only one")] = None,
    levels_only: Annotated[
        bool, typer.Option("--levels-only", "--no-start", help="times alone, no engine start")
    ] = False,
) -> None:
    """Time all-reduce under each level of a factor, and prove what each level changes."""
    from flows.screen_run import asked_screening, make_screen
    from flows.show_screen import screen_text

    question = pose(sweep, host)
    asked = asked_screening(question, factor, starts=not levels_only)
    progress = Progress()
    found = make_screen(question, asked, Store(runs_folder()), _hands(progress, None))
    progress.clear()
    console.print(screen_text(found))


@app.command()
def calibrate(
    sweep: SweepName,
    host: HostName = None,
    blocks: Annotated[int, typer.Option(min=2, help="pairs of boots")] = 4,
    fresh: Annotated[bool, typer.Option("--fresh", help="forget the latest run")] = False,
) -> None:
    """Measure a host's own noise: a sweep's baseline against its copy, and what would be found."""
    from configs.copies import calibration_of
    from flows.show import noise_text
    from tasks.noise_floor import noise_floor

    outcome = _conduct(pose(calibration_of(read_sweep(sweep), blocks), host), fresh=fresh)
    compared = outcome.report.comparison
    ok = [record for record in outcome.records if record.status == "ok"]
    console.print(noise_text(noise_floor(ok, compared.metrics), outcome.report.sentence))
    _tell_end(outcome)


def _hands(progress: Progress, tracker: Tracker | None) -> Hands:
    """Hands that show their progress here; a signal ends what they do from now on."""
    from flows.outcome import Hands
    from flows.stages import PlainRunner
    from infra.connect import connect

    for number in (signal.SIGTERM, signal.SIGINT):  # click would take SIGINT for itself
        signal.signal(number, _stop)
    return Hands(
        connect=lambda spec: connect(spec, note=progress.line),
        runner=lambda trial: PlainRunner(lambda text: progress.show(f"{trial} {text}")),
        tracker=tracker,
        say=progress.line,
    )


def _conduct(
    question: Question, *, fresh: bool, host: str | None = None, until: str | None = None
) -> Outcome:
    """Runs what is missing of a question in this process, with progress on the terminal."""
    from flows.budget import budget_of
    from flows.conduct import Conductor
    from flows.runs import open_run
    from flows.screen_run import screened_first
    from infra.tracking import Tracker, tracking_uri

    uri = tracking_uri()
    progress, store = Progress(), Store(runs_folder())
    hands = _hands(progress, Tracker(uri, note=progress.line) if uri else None)
    question = screened_first(question, store, hands, host=host)
    for warning in question.warnings:
        console.print(f"warning: {warning}", style="yellow")
    if uri is None:
        say("MLflow: none (set MLFLOW_TRACKING_URI); `eagle3-sweep publish` brings it there later")
    with open_run(store, question, fresh=fresh) as folder:
        budget = budget_of(question, store, folder, until)
        outcome = Conductor(question, folder, hands, budget).conduct()
    progress.clear()
    return outcome


def _tell_end(outcome: Outcome) -> None:
    from tasks.reporting import PAGE

    say(f"{outcome.counts().text()}; report: {outcome.report.folder}/{PAGE}")
    if outcome.counts().ok + outcome.counts().suspect == 0:
        raise typer.Exit(1)


@app.command()
def compare(
    sweep: SweepName,
    run_number: Annotated[int | None, typer.Option("--run", help="which run; the latest")] = None,
    every_figure: Annotated[bool, typer.Option("--all", help="every figure's verdicts")] = False,
) -> None:
    """Compare the trials of a sweep's latest run; reads the run folder alone."""
    from flows.runs import read_records, read_run_sweep
    from flows.show import verdicts_text
    from tasks.decision import decision_of
    from tasks.reporting import PAGE, compare_classes

    folder = find_run(sweep, run_number)
    found = compare_classes(read_run_sweep(folder), read_records(folder))
    console.print(verdicts_text(found, decision_of(found), every_figure=every_figure))
    say(f"run {folder.id}: {folder.path}")
    page = folder.path / "report" / PAGE
    if page.exists():
        say(f"report: {page}")


@app.command()
def publish(
    sweep: SweepName,
    run_number: Annotated[int | None, typer.Option("--run", help="which run; the latest")] = None,
) -> None:
    """Bring MLflow up to date from the run folder; twice is the same as once."""
    from flows.runs import read_records, read_run_sweep
    from infra.tracking import Tracker, tracking_uri
    from tasks.publish import publish_missing
    from tasks.reporting import write_report

    uri = tracking_uri()
    if uri is None:
        mistake("no MLflow: set MLFLOW_TRACKING_URI, or run `eagle3-sweep up`")
    folder = find_run(sweep, run_number)
    tracker = Tracker(uri, note=say)
    left = publish_missing(folder, tracker, say)
    report = write_report(folder, read_run_sweep(folder), read_records(folder), tracker, say)
    say(f"{folder.id}: {tracker.chart_link(report.sweep)}")
    if left:
        raise typer.Exit(1)


@app.command()
def clean(sweep: SweepName) -> None:
    """End what an interrupted run left on its hosts, and record it as interrupted."""
    from flows.aftermath import clean_up_run

    with find_run(sweep, None).alone() as run:  # never under a process that goes on with it
        clean_up_run(run, say)


@app.command()
def demo() -> None:
    """Everything up, the rehearsal sweep through Prefect, its verdict, and where to look."""
    from flows import services
    from infra.tracking import Tracker

    found = services.up(say)
    os.environ.update(found.env)
    from flows.demo import NAME, begin, follow  # Prefect reads its address as it is imported

    say(f"\n$ prefect deployment run {NAME}")
    flow_run = begin(say)
    try:
        ended = follow(flow_run, say)
    except KeyboardInterrupt:
        say(f"the sweep goes on; to end it: prefect flow-run cancel {flow_run}")
        raise typer.Exit(130) from None
    say(f"{ended.state}\n")
    compare("rehearsal", None)
    say(f"\nPrefect  {found.prefect_ui}\nMLflow   {Tracker(found.mlflow).chart_link('rehearsal')}")
    raise typer.Exit(0 if ended.completed else 1)


def _stop(_number: int, _frame: object) -> NoReturn:
    raise Stopped


def main() -> None:
    """Runs the command line; a user's mistake or the world's fault prints no traceback."""
    error_console = Console(stderr=True, highlight=False, soft_wrap=True)
    code: int
    try:
        app()
    except ConfigError as error:
        error_console.print(str(error), markup=False)
        code = 2
    except (WorldError, StageFailedError) as error:
        error_console.print(str(error), markup=False)
        code = 1
    except (KeyboardInterrupt, Stopped):
        error_console.print("stopped; the trial in flight was torn down", markup=False)
        code = 130
    else:
        return
    raise SystemExit(code)
