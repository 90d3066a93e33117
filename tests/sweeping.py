"""Small sweeps on a pretend host over real SSH: in this process, or as a command of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from configs.host import Fingerprint, Host, Ssh
from configs.read import parse_sweep, to_yaml
from flows.conduct import Conductor
from flows.outcome import Hands
from flows.question import pose
from flows.runs import open_run
from flows.stages import PlainRunner
from infra.agent import processes
from infra.connect import connect
from infra.rehearsal import faults, hosting, knobs, memory
from infra.store import RunFolder, Store
from tasks.record import TrialRecord
from tests import rehearsing
from tests.agent_host import until

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator

    from configs.sweep import Sweep
    from flows.budget import Budget
    from flows.outcome import Outcome
    from flows.question import Question
    from infra.rehearsal.faults import Fault

T = TypeVar("T")
TIME_SCALE = 4.0
MEASURED = {"ok", "suspect"}
"""How a trial ends that was measured; on a busy machine the load client may come out suspect."""
_BOUND_S = 120.0

_OFF = "{kind: off}"
_EAGLE3 = "{kind: eagle3, drafter: data/eagle3/%s, num_steps: 3, topk: 1, draft_tokens: 4}"
_DRAFTERS = {"tuned": "k25-tuned", "custom": "k25-custom", "medai": "aq-medai-k2-drafter"}
_SWEEP = """
name: {name}
question: Does it pay on the pretend host?
hosts: [box]
engine:
  kind: sglang
  model: shared/kimi-k2.5-int4
  flags: {{tp-size: 8, mem-fraction-static: 0.85, max-running-requests: 64, cuda-graph-max-bs: 64}}
  env_from: [{env_from}]
patches: [{patches}]
keep_patch: {keep}
baseline: {baseline}
arms:{arms}
probes:
  load:
    kind: stream
    prompts: mixed
    concurrency: [2]
    requests_per_slot: {per_slot}
    min_requests: 4
    sampling: {{max_new_tokens: {tokens}, ignore_eos: true}}
    template: {{kind: none}}
    warm_up: {{per_slot: 1, max_new_tokens: {warm_tokens}, max_windows: {windows}}}
blocks: {blocks}
patience: {{start_s: 30, silence_s: {silence_s}, stop_s: 1, gpu_free_s: {gpu_free_s}}}
"""


def sweep(
    name: str = "small",
    *,
    arms: str = "base",
    patches: str = "kimi_k25_eagle3",
    keep: bool = False,
    blocks: int = 1,
    tokens: int = 48,
    per_slot: int = 3,
    silence_s: float = 20,
    gpu_free_s: float = 5,
    env_from: str = "",
    warm_tokens: int = 4,
    windows: int = 0,
) -> Sweep:
    """A small sweep: one probe at concurrency 2.

    Args:
        arms: Joined by +: base, tuned, custom, medai, or any other name for one like tuned.
    """
    names = arms.split("+")
    text = _SWEEP.format(
        name=name,
        arms="".join(map(_arm, names)),
        baseline=names[0],
        patches=patches,
        keep=str(keep).lower(),
        blocks=blocks,
        tokens=tokens,
        per_slot=per_slot,
        silence_s=silence_s,
        gpu_free_s=gpu_free_s,
        env_from=env_from,
        warm_tokens=warm_tokens,
        windows=windows,
    )
    return parse_sweep(text, f"{name}.yaml")


def _arm(name: str) -> str:
    drafter = _DRAFTERS.get(name, "k25-tuned")
    speculation = _OFF if name == "base" else _EAGLE3 % drafter
    # Arms that ask for the same would share a fingerprint.
    return f"\n  {name}: {{speculation: {speculation}, env: {{ARM: {name}}}}}"


class Noting(PlainRunner):
    """Keeps when a stage failed, and tells when one begins."""

    def __init__(
        self,
        say: Callable[[str], None],
        failed_at: dict[str, float],
        at: Callable[[str], None] = lambda _stage: None,
    ) -> None:
        super().__init__(say)
        self._failed_at = failed_at
        self._at = at

    def run(self, name: str, work: Callable[[], T]) -> T:
        self._at(name)
        try:
            return super().run(name, work)
        except BaseException:
            self._failed_at.setdefault(name, time.monotonic())
            raise


class Ground:
    """A pretend host, and the folder from which it is swept."""

    def __init__(self, place: Path, ready: hosting.Host, time_scale: float) -> None:
        self.place = place
        self.ready = ready
        self.host = Host(
            name="box",
            connect=Ssh(
                host=ready.host,
                port=ready.port,
                user=ready.user,
                key=ready.key,
                host_key=Fingerprint(sha256=ready.fingerprint),
            ),
            python="venv/bin/python",
            gpus=8,
            host_class="rehearsal",
            lease_s=10,
            time_scale=time_scale,
            rehearsal=True,
        )
        self.said: list[str] = []
        self.failed_at: dict[str, dict[str, float]] = {}
        """Trial -> stage -> when it failed first, on the clock that the host's agent uses too."""

    @property
    def folder(self) -> Path:
        """Of the pretend host."""
        return self.ready.folder

    @property
    def runs(self) -> Store:
        """Everything recorded here."""
        return Store(self.place / "runs")

    @property
    def root(self) -> Path:
        """What the product keeps on the host."""
        return Path(self.ready.home) / ".eagle3-sweep"

    @property
    def source(self) -> Path:
        """The engine's file that the patch changes."""
        return rehearsing.model_file(self.folder)

    def host_file(self, **changed: Any) -> Path:
        """Writes the host file; returns its path."""
        folder = self.place / "configs" / "hosts"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "box.yaml"
        path.write_text(to_yaml(self.host.model_copy(update=changed)))
        return path

    def sweep_file(self, asked: Sweep) -> Path:
        """Writes the sweep's file; returns its path."""
        folder = self.place / "configs" / "sweeps"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{asked.name}.yaml"
        path.write_text(to_yaml(asked))
        return path

    def run(
        self,
        asked: Sweep,
        *,
        fresh: bool = False,
        hear: Callable[[str], None] | None = None,
        at: Callable[[str], None] = lambda _stage: None,
        patience_s: float = 20,
        budget: Callable[[Question, RunFolder], Budget | None] = lambda _question, _run: None,
        **changed: Any,
    ) -> Outcome:
        """Runs a sweep in this process, as the command line does.

        Args:
            asked: The sweep.
            fresh: Whether earlier runs are forgotten.
            hear: Called with everything that is said, at once.
            at: Called with the name of every stage as it begins.
            patience_s: How long lost contact is tried again.
            budget: What limits the time, from question and run folder.
            changed: In the host file.
        """
        question = pose(asked, str(self.host_file(**changed)))
        self.said.clear()
        self.failed_at.clear()

        def say(text: str) -> None:
            self.said.append(text)
            if hear is not None:
                hear(text)

        hands = Hands(
            connect=lambda spec: connect(spec, patience_s=patience_s, note=say),
            runner=lambda trial: Noting(say, self.failed_at.setdefault(trial, {}), at),
            tracker=None,
            say=say,
        )
        with open_run(self.runs, question, fresh=fresh) as folder:
            return Conductor(question, folder, hands, budget(question, folder)).conduct()

    def trial(self, asked: Sweep, **changed: Any) -> Tried:
        """Runs a sweep of one arm anew; returns its only trial."""
        outcome = self.run(asked, fresh=True, **changed)
        (last,) = outcome.records
        return self.tried(outcome, last.trial, last.attempt)

    def tried(self, outcome: Outcome, trial: str, attempt: int = 1) -> Tried:
        """One attempt at a trial of a sweep that was run."""
        path = outcome.run.path / "trials" / f"{trial}.a{attempt}" / "record.json"
        return Tried(TrialRecord.model_validate_json(path.read_bytes()), outcome.run, self)

    def command(self, *words: str, **env: str) -> Command:
        """`eagle3-sweep` as a process of its own, in this folder."""
        return Command(self, words, env)

    def command_of(self, asked: Sweep, **changed: Any) -> Command:
        """`eagle3-sweep run` of a sweep, as a process of its own."""
        self.host_file(**changed)
        return self.command("run", str(self.sweep_file(asked)))

    def plant(self, when: str, what: str = "die", **more: Any) -> Fault:
        """A fault for the next engine."""
        fault = faults.Fault(when, what, **more)
        faults.plant(self.folder, fault)
        return fault

    def latest(self, name: str) -> RunFolder:
        """The latest run of a sweep."""
        found = self.runs.latest(name)
        assert found is not None, name
        return found

    def attempt(self, name: str) -> Path:
        """The folder on the host of the attempt in flight; one that is not there if there is none."""
        run = self.runs.latest(name)
        going = [folder for folder in run.trials() if not folder.finished] if run else []
        return self.root / "trials" / (run.marker(going[0]) if run and going else "none")

    def holders(self) -> list[memory.Holder]:
        """Who holds GPU memory now."""
        delay = knobs.read(self.folder).release_delay_s
        cards = range(memory.GPUS)
        return [holder for gpu in cards for holder in memory.holders(self.folder, gpu, delay)]

    def engines(self) -> list[int]:
        """Living processes of any engine of ours here: that very process, for numbers come again."""
        found = []
        for state in (self.root / "trials").glob("*/state.json"):
            engine = json.loads(state.read_text())["engine"]
            if processes.alive(engine):
                found.append(engine["pid"])
        return found

    def empty(self) -> bool:
        """Whether nothing of ours runs there: no engine, no GPU memory."""
        return not self.engines() and not self.holders()


class Tried(NamedTuple):
    """One trial that ended."""

    record: TrialRecord
    run: RunFolder
    ground: Ground

    @property
    def folder(self) -> Path:
        """Of the attempt, here."""
        return self.run.path / "trials" / f"{self.record.trial}.a{self.record.attempt}"

    @property
    def state(self) -> Any:
        """The agent's last word on the engine, on the host."""
        marker = f"{self.run.holder}.{self.folder.name}"
        path = self.ground.root / "trials" / marker / "state.json"
        return json.loads(path.read_text())

    @property
    def stages(self) -> list[str]:
        """Names of the stages that ran, in order."""
        return [stage.name for stage in self.record.stages]


class Command:
    """A running `eagle3-sweep`; killed at the latest when its test ends."""

    def __init__(self, ground: Ground, words: tuple[str, ...], env: dict[str, str]) -> None:
        self._out = ground.place / f"stdout-{len(list(ground.place.glob('stdout-*')))}"
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from flows.cli import main; main()", *words],
                cwd=ground.place,
                env={**os.environ, "EAGLE3_HOME": str(ground.place), **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    @property
    def text(self) -> str:
        """What it said so far."""
        return self._out.read_text()

    def reaches(self, condition: Callable[[], Any]) -> None:
        """Waits for a moment of its life."""

        def reached() -> bool:
            there = bool(condition())
            assert there or self.process.poll() is None, f"it ended first:\n{self.text}"
            return there

        until(reached, _BOUND_S)

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self.process.send_signal(number)

    def ended(self, within_s: float = _BOUND_S) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(within_s)


@contextmanager
def ground(place: Path, **changed: Any) -> Iterator[Ground]:
    """A quick pretend host that listens, swept from a folder of its own."""
    settings: dict[str, Any] = {"time_scale": TIME_SCALE, "start_s": 0.4, **changed}
    folder = rehearsing.build(place / "host", **settings)
    with hosting.serving(folder) as ready:
        yield Ground(place, ready, settings["time_scale"])


def loads(attempt: Path) -> bool:
    """Whether the engine of an attempt is in the middle of its start."""
    log = attempt / "server.log"
    return log.exists() and "Load weight begin" in log.read_text(errors="replace")


def probes(attempt: Path) -> bool:
    """Whether an attempt is in the middle of its probe: a request of it has ended."""
    samples = attempt / "jobs" / "probe-load-c2" / "samples.jsonl"
    return samples.exists() and samples.stat().st_size > 0


def finished(ground: Ground, name: str) -> list[str]:
    """The trials of a sweep's latest run that have a record, attempts counted apart."""
    run = ground.runs.latest(name)
    return [folder.path.name for folder in run.trials() if folder.finished] if run else []
