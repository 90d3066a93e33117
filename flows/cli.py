"""The command line; what it does with servers and hosts alone is in modules of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from configs.problems import ConfigError
from configs.read import read_sweep
from flows.doctor import doctor
from flows.inspecting import inspect
from flows.question import pose
from flows.servers import deploy, down, up
from flows.terminal import Progress, console, say
from infra.errors import WorldError
from infra.places import runs_folder
from infra.store import RunFolder, Store
from tasks.venue import StageFailedError

if TYPE_CHECKING:
    from flows.conduct import Hands, Outcome
    from flows.question import Question
    from infra.tracking import Tracker

app = typer.Typer(
    help="Does EAGLE-3 speculative decoding pay for this model on this host?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _command in (inspect, doctor, up, deploy, down):
    app.command()(_command)

SweepName = Annotated[str, typer.Argument(help="name in configs/sweeps, or a path")]
HostName = Annotated[str | None, typer.Option(help="another host than the sweep's own")]


class Stopped(BaseException):
    """SIGTERM or Ctrl-C: the trial in flight is torn down on the way out."""


@app.command()
def plan(sweep: SweepName, host: HostName = None) -> None:
    """Show every trial and command; with --host, ask the engine there whether it knows all flags."""
    from flows.screened import screened
    from flows.show import plan_text

    question = screened(pose(sweep, host), Store(runs_folder()), host=host)
    console.print(plan_text(question))
    if host is not None:
        from flows.installed import hold_against

        hold_against(question, sweep, say)


@app.command()
def run(
    sweep: SweepName,
    host: HostName = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="forget the latest run")] = False,
) -> None:
    """Run what is missing of a sweep, without any server; then compare and report."""
    from flows.show import verdict_text

    outcome = _conduct(pose(sweep, host), fresh=fresh, host=host)
    console.print(verdict_text(outcome.report.comparison, outcome.report.sentence))
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
    from flows.conduct import Hands
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


def _conduct(question: Question, *, fresh: bool, host: str | None = None) -> Outcome:
    """Runs what is missing of a question in this process, with progress on the terminal."""
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
        outcome = Conductor(question, folder, hands).conduct()
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
    from flows.show import verdict_text
    from tasks.decision import decision_sentence
    from tasks.reporting import PAGE, compare_sweep

    folder = _find_run(sweep, run_number)
    found = compare_sweep(read_run_sweep(folder), read_records(folder))
    console.print(verdict_text(found, decision_sentence(found), every_figure=every_figure))
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
        _mistake("no MLflow: set MLFLOW_TRACKING_URI, or run `eagle3-sweep up`")
    folder = _find_run(sweep, run_number)
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

    with _find_run(sweep, None).alone() as run:  # never under a process that goes on with it
        clean_up_run(run, say)


@app.command()
def demo() -> None:
    """Everything up, the rehearsal sweep through Prefect, its verdict, and where to look."""
    from flows import services
    from infra.tracking import Tracker

    found = services.up(say)
    say("\n$ prefect deployment run eagle3-sweep/eagle3-sweep --watch")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "prefect",
            "deployment",
            "run",
            "eagle3-sweep/eagle3-sweep",
            "--watch",
        ],
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **found.env},
    )
    os.environ.update(found.env)
    compare("rehearsal", None)
    say(f"\nPrefect  {found.prefect_ui}\nMLflow   {Tracker(found.mlflow).chart_link('rehearsal')}")
    raise typer.Exit(done.returncode)


def _find_run(sweep: str, number: int | None) -> RunFolder:
    name = read_sweep(sweep).name if "/" in sweep or sweep.endswith(".yaml") else sweep
    store = Store(runs_folder())
    runs = store.runs(name)
    if number is not None:
        runs = [folder for folder in runs if int(folder.path.name) == number]
    if not runs:
        _mistake(f"no run of {name} in {store.root}: `eagle3-sweep run {name}` makes one")
    return runs[-1]


def _stop(_number: int, _frame: object) -> NoReturn:
    raise Stopped


def _mistake(text: str) -> NoReturn:
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)
    raise typer.Exit(2)


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
