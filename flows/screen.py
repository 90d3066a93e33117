"""A screen from its claim to screen.json: levels timed, one start each for proof, who may stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from configs.flags import whole_flag
from configs.layers import arm_flags, engine_of, reference_levels
from configs.nodes import place_name
from configs.plan import Trial
from flows.run_trial import Orders, run_trial
from flows.screen_key import screen_key, screen_name
from flows.sites import leave, site_of
from flows.skips import of_the_setting
from tasks.launch import read_secrets
from tasks.prepare import claim, clean_gpus, survey
from tasks.screen import LevelScreen, Screen, StartProof
from tasks.screen_host import (
    debug_env,
    level_env,
    look_inside,
    sizes_on_host,
    start_lines,
    start_log,
    time_levels,
    timed_logs,
)
from tasks.screen_kept import keep_screen
from tasks.screen_made import Found, made_screen
from tasks.screen_times import size_times

if TYPE_CHECKING:
    from configs.screening import Screening
    from configs.sweep import Sweep
    from flows.outcome import Hands
    from flows.question import Question
    from infra.host_agent import HostAgent
    from infra.store import RunFolder
    from tasks.prepare import Survey
    from tasks.screen_sizes import Sizes
    from tasks.venue import Site


class _Timed(NamedTuple):
    sizes: Sizes
    tp: int
    result: dict[str, Any]
    levels: tuple[LevelScreen, ...]


def screening_question(question: Question, asked: Screening) -> Question:
    """The starts of a screen as a plan of its own: the baseline arm once under each level."""
    sweep = question.sweep
    levels = sweep.factors[asked.factor]
    first = reference_levels(sweep)
    wanted = [{**first, asked.factor: level} for level in asked.starts_at(tuple(levels))]
    host = place_name(sweep.hosts[0])
    trials = [
        trial.model_copy(update={"host": host})
        for trial in question.plan.trials
        if trial.block == 1 and trial.arm == sweep.baseline and trial.levels in wanted
    ]
    plan = question.plan.model_copy(
        update={"sweep": screen_name(sweep.name), "trials": tuple(trials)}
    )
    return question._replace(plan=plan)


class Screener:
    """Screens one factor on the first of a sweep's hosts."""

    def __init__(self, question: Question, asked: Screening, run: RunFolder, hands: Hands) -> None:
        """See :func:`screening_question` for the question's plan."""
        self._question = question
        self._asked = asked
        self._run = run
        self._hands = hands
        self._host = question.hosts[place_name(question.sweep.hosts[0])]
        self._secrets = read_secrets(question.sweep, self._host)

    def screen(self) -> Screen:
        """Everything, in order; the host is let go of whatever happens.

        Raises:
            StageFailedError: The host is held, others compute on its GPUs, or the target's
                config.json does not tell its width.
        """
        agent = self._hands.connect(self._host)
        try:
            return self._on_host(agent)
        finally:
            leave(agent, self._run.holder, self._hands.say)

    def _on_host(self, agent: HostAgent) -> Screen:
        sweep, hands = self._question.sweep, self._hands
        runner = hands.runner("screen")
        site = self._site(agent, self._arrival())
        patience = sweep.patience.claim_s
        note = f"{self._run.id} screens {self._asked.factor}"
        runner.run("claim", lambda: claim(agent, site.holder, note, patience))
        agent.make_folder(site.folder)
        found, raw = runner.run("survey", lambda: survey(site))
        runner.run("clean_gpus", lambda: clean_gpus(site, found, raw))
        timed = runner.run("collectives", lambda: self._timed(site))
        starts = {}
        for trial in self._question.plan.trials:
            level = trial.levels[self._asked.factor]
            starts[level] = self._start(trial, agent)
            hands.say(f"{trial.id}: {_start_words(starts[level][0])}")
        screen = self._made(found, timed, starts)
        keep_screen(self._run, screen)
        return screen

    def _arrival(self) -> Trial:
        """A trial of the baseline arm, for a site of the screen itself."""
        sweep = self._question.sweep
        return Trial(
            id="screen",
            arm=sweep.baseline,
            levels=reference_levels(sweep),
            block=1,
            order=0,
            host=self._host.name,
            intent="",
        )

    def _site(self, agent: HostAgent, trial: Trial) -> Site:
        return site_of(
            self._question,
            self._run,
            trial,
            [agent],
            secrets={self._host.name: self._secrets},
            say=self._hands.say,
        )

    def _timed(self, site: Site) -> _Timed:
        sweep, factor = self._question.sweep, self._asked.factor
        sizes = sizes_on_host(site)
        flags = arm_flags(sweep, sweep.baseline, reference_levels(sweep))
        tp = whole_flag(flags, "tp-size") or 1
        if tp > 1:
            result = time_levels(site, factor, sizes, tp)
        else:
            result = {"available": False, "message": "one GPU: there is nothing to reduce"}
        logs = timed_logs(site, result)
        reference = level_env(sweep, factor, next(iter(sweep.factors[factor])))
        levels = []
        for name, level in sweep.factors[factor].items():
            told = result.get("levels", {}).get(name, {})
            log = logs.get(name)
            env = level_env(sweep, factor, name)
            levels.append(
                LevelScreen(
                    level=name,
                    env={k: v for k, v in env.items() if reference.get(k) != v},
                    flags={flag: str(value) for flag, value in level.flags.items()},
                    times=size_times(told, sizes),
                    error=_first_words(told, log.warnings if log else ()),
                    nccl=log,
                )
            )
        return _Timed(sizes, tp, result, tuple(levels))

    def _start(self, trial: Trial, agent: HostAgent) -> tuple[StartProof, list[str]]:
        """One start without traffic, and what was seen of it."""
        sweep, run = self._question.sweep, self._run
        runner = self._hands.runner(trial.id)
        keep = run.next_attempt(trial.id)
        site = site_of(
            self._question,
            run,
            trial,
            [agent],
            secrets={self._host.name: self._secrets},
            say=runner.say,
            keep=keep,
        )
        site = replace(site, sweep=_without_traffic(sweep, debug_env(site.folder)))
        seen: dict[str, str | None] | None = None
        names = sorted(sweep.factors[self._asked.factor][trial.levels[self._asked.factor]].env)

        def look(at: Site) -> str:
            nonlocal seen
            seen = look_inside(at, names)
            return "looked into the engine's ranks" if seen is not None else "no rank to look into"

        orders = Orders(self._question.patches, {}, self._secrets, run.holder, {}, look)
        record = run_trial(site, orders, runner)
        failure = record.failure
        log = start_log(site)
        words = (log.warnings if log else ()) + ((failure.message,) if failure else ())
        proof = StartProof(
            trial=keep.path.name,
            status="failed" if failure else "started",
            failure_class=failure.failure_class if failure else None,
            of_the_setting=failure is None or of_the_setting(failure),
            message=words[0] if failure else None,
            nccl=log,
            seen=seen,
        )
        return proof, start_lines(site)

    def _made(
        self,
        found: Survey,
        timed: _Timed,
        starts: dict[str, tuple[StartProof, list[str]]],
    ) -> Screen:
        host = self._host
        screen = made_screen(
            self._question.sweep,
            self._asked,
            Found(
                sizes=timed.sizes,
                tp=timed.tp,
                result=timed.result,
                levels=timed.levels,
                starts=starts,
                versions=found.versions,
                host_env=host.env,
            ),
        )
        return screen.model_copy(
            update={
                "run": self._run.id,
                "key": screen_key(self._question, self._asked.factor),
                "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "host": host.name,
                "host_class": host.host_class,
                "rehearsal": host.rehearsal,
            }
        )


def _without_traffic(sweep: Sweep, env: dict[str, str]) -> Sweep:
    """The sweep as a start alone sees it; what a level sets itself wins over ``env``."""
    asked, name = engine_of(sweep, sweep.baseline), sweep.arms[sweep.baseline].engine
    engine = asked.model_copy(update={"env": {**env, **asked.env}})
    at = {"engine": engine} if name is None else {"engines": {**sweep.engines, name: engine}}
    return sweep.model_copy(update={**at, "probes": {}})


def _first_words(told: dict[str, Any], warnings: tuple[str, ...]) -> str | None:
    """Why a level could not be timed: NCCL's own words, else those of the process."""
    if told.get("error") is None:
        return None
    return (warnings or (f"{told['error']}: {told.get('message')}",))[0]


def _start_words(proof: StartProof) -> str:
    if proof.status == "started":
        return "started"
    return f"does not start ({proof.failure_class}): {proof.message}"
