"""A trial on a host that is a script: every stage succeeds, until something comes in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from configs.plan import make_plan
from configs.read import read_host, read_sweep
from flows.aftermath import clean_up_run
from flows.run_trial import Orders, run_trial
from infra.masking import Mask
from infra.store import Store, write_json, write_value
from infra.tracking import Tracker
from tasks.gpus import GpuSurvey
from tasks.launch import Handle, Secrets
from tasks.prepare import Survey
from tasks.record import StageTime, TrialRecord
from tasks.tear_down import verified
from tasks.together import Launched
from tasks.venue import Site, failed
from tasks.wait_ready import Ready
from tests.scripted_mlflow import ScriptedMlflow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLEAN = {
    "ok": True,
    "outcome": "clean",
    "signalled": [7000],
    "survivors": [],
    "gpu_free": True,
    "files": [],
    "port_free": True,
    "gpus": [],
    "seconds": 0.1,
}
HANDLE = Handle(
    folder="/h/t", port=30000, pid=7000, pgid=7000, sid=7000, start_ticks=1, boot_id="b"
)
# What a stage brings where all is well, of each node where it is done on all of a place; those that
# are not here do their own work.
SURVEY = Survey(
    versions={"sglang": "0.5.9"}, gpus=GpuSurvey(), gpu_names=(), facts_key="", must_match={}
)
BRINGS: dict[str, Any] = {
    "claim": "claimed",
    "survey": ((SURVEY, {}),),
    "clean_gpus": "8 GPUs free",
    "patch": ((),),
    "clear_pycache": "",
    "check_drafter": "",
    "launch": Launched((HANDLE,)),
    "wait_ready": Ready(started_s=1.0, notes=()),
    "verify": (None, {}),
    "warm_up": "",
    "probe": "",
}
#: The stage that is at work once so much has happened.
AFTER = {"start_run": "claim", "launch": "wait_ready", "pid": "wait_ready", "ready": "warm_up"}
INTERRUPTS: dict[str, Callable[[str], BaseException]] = {
    "SIGTERM": SystemExit,  # Prefect turns it into a BaseException of its own
    "SIGINT": KeyboardInterrupt,
    "KeyboardInterrupt": KeyboardInterrupt,
    "cancelled": SystemExit,
    "exit": SystemExit,
    "exception": RuntimeError,
    "error": RuntimeError,
    "died": lambda words: failed("wait_ready", "engine_dead", words),
    "crash": lambda words: failed("wait_ready", "engine_dead", words),
}


class ScriptedAgent:
    """The hand on a host on which everything is granted; tells what was asked."""

    root = "/h/.eagle3-sweep"

    def __init__(self, happened: list[str]) -> None:
        self._happened = happened
        self.reaped: dict[str, Any] = {}

    def path(self, text: str) -> str:
        return text

    def make_folder(self, path: str) -> None:
        pass

    def call(self, command: str, **_request: Any) -> dict[str, Any]:
        self._happened.append(command)
        return {"ok": True, "log": "", "paths": [], "patches": [], "files": []}

    def head(self, *_arguments: Any) -> None:
        return None

    def hurry(self, patience_s: float) -> None:
        pass

    def close(self) -> None:
        pass

    def get(self, path: str) -> bytes:
        raise FileNotFoundError(path)

    def job(self, _folder: str, _name: str, job: str, *_rest: Any, **_named: Any) -> Any:
        self._happened.append(job)
        self.reaped = CLEAN
        return CLEAN


class ScriptedRunner:
    """Runs stages as the script says, and lets something come in between at one of them."""

    def __init__(self, at: str, what: BaseException | None) -> None:
        self.times: list[StageTime] = []
        self._at, self._what = at, what

    def run(self, name: str, work: Callable[[], Any]) -> Any:
        stage = name.split(":", maxsplit=1)[0]
        if stage == self._at and self._what is not None:
            raise self._what
        return BRINGS[stage] if stage in BRINGS else work()

    def say(self, _text: str) -> None:
        pass


class Interrupted(NamedTuple):
    """What became of the trial."""

    happened: list[str]
    """Requests to the host and to MLflow, in order."""
    record: TrialRecord
    mlflow: Any
    """Its run there."""
    verified: tuple[str, ...]


class Watched(ScriptedMlflow):
    """An MLflow that tells when a run is ended."""

    def __init__(self, happened: list[str]) -> None:
        super().__init__()
        self._happened = happened

    def _do_set_terminated(self, run_id: str, *, status: str, end_time: int) -> None:
        self._happened.append("set_terminated")
        super()._do_set_terminated(run_id, status=status, end_time=end_time)


def interrupted(folder: Path, events: list[str]) -> Interrupted:
    """Runs a trial through what happens, and what is done about it afterwards."""
    happened: list[str] = []
    sweep, host = read_sweep("rehearsal"), read_host("rehearsal")
    run, plan = Store(folder).new_run("rehearsal"), make_plan(sweep)
    write_value(run.path / "sweep.json", sweep)
    write_value(run.path / "plan.json", plan)
    hosts = {host.name: host.model_dump(mode="json")}
    write_json(run.path / "run.json", {"uid": "ab12", "pid": 1, "hosts": hosts})
    keep = run.next_attempt(plan.trials[0].id)
    agent: Any = ScriptedAgent(happened)
    site = Site(
        agent=agent,
        host=host,
        sweep=sweep,
        trial=plan.trials[0],
        holder="holder",
        marker="marker",
        keep=keep,
        mask=Mask(),
    )
    stage, what, killed = _between(events)
    texts: Any = {
        name: dict.fromkeys(probe.concurrency, ()) for name, probe in sweep.probes.items()
    }
    if not killed:
        try:
            run_trial(
                site, Orders((), texts, Secrets({}, None), run.id, {}), ScriptedRunner(stage, what)
            )
        except (SystemExit, KeyboardInterrupt, RuntimeError) as error:
            happened.append(type(error).__name__)
    client = Watched(happened)
    tracker = Tracker("http://mlflow", client=client)
    clean_up_run(run, happened.append, reach=lambda _host: agent, tracker=tracker)
    record = TrialRecord.model_validate_json(keep.record.read_bytes())
    (published,) = client.runs.values()
    return Interrupted(
        happened, record, published.info, verified(agent.reaped) if agent.reaped else ()
    )


def _between(events: list[str]) -> tuple[str, BaseException | None, bool]:
    """At which stage what comes in between, and whether the process is killed outright."""
    stage = "claim"
    for event in events:
        for word, kind in INTERRUPTS.items():
            if word in event:
                return stage, kind(event), False
        if "SIGKILL" in event or "killed" in event:
            return stage, None, True
        stage = next((AFTER[word] for word in AFTER if event.startswith(word)), stage)
    return stage, None, False
