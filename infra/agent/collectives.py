"""The job that times all-reduce under several settings of the environment, each in processes of its own.

Only the ranks (collective_rank) need torch; this side starts them, goes round the settings, and
survives theirs: a setting that fails is a result like any other.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any, Optional

from infra.agent import folders
from infra.agent.jobs import Job
from infra.agent.world import Broken, Plan, World

MOST_REPEATS = 5000


class Screen:
    """Goes round the settings, so that what changes with time touches all of them alike."""

    def __init__(self, job: Job, plan: Plan) -> None:
        self.job = job
        self.plan = plan
        self.about: dict[str, Any] = {}
        self.levels: dict[str, dict[str, Any]] = {
            level["name"]: {"error": None, "message": None, "passes": [], "debug": []}
            for level in plan.levels
        }
        self.done = 0

    def run(self) -> dict[str, Any]:
        """All passes; what is known of every setting."""
        order = list(self.plan.levels)
        for turn in range(self.plan.passes):
            alive = [level for level in order if self.levels[level["name"]]["error"] is None]
            # Another composition and another order each time.
            shift = turn % max(1, len(alive))
            alive = alive[shift:] + alive[:shift]
            for start in range(0, len(alive), self.plan.together):
                self._group(alive[start : start + self.plan.together], turn)
        return {"available": True, **self.about, "levels": self.levels}

    def _group(self, levels: list[dict[str, Any]], turn: int) -> None:
        """Settings that live side by side: round after round, each in its turn."""
        worlds: list[World] = []
        try:
            for level in levels:
                try:
                    worlds.append(World(self.job, self.plan, level, turn))
                except Broken as fault:
                    self._failed(level["name"], fault, None)
            worlds = [world for world in worlds if self._warmed(world)]
            for _ in range(self.plan.rounds):
                worlds = [world for world in worlds if self._measured(world)]
                worlds = worlds[1:] + worlds[:1]
                self._tell()
        finally:
            for world in worlds:
                self._keep(world)
                world.end()

    def _warmed(self, world: World) -> bool:
        """Whether a setting is ready; finds out how many calls make a measurement of it."""
        try:
            about = world.ready()
            self.about = {**about, **self.about}
            seconds = world.round()
            per_call = int(about["per_repeat"])
            world.repeats = [
                min(MOST_REPEATS, max(1, round(self.plan.size_s / max(one * per_call, 1e-9))))
                for one in seconds
            ]
            world.round()
        except Broken as fault:
            self._failed(world.name, fault, world)
            return False
        self.levels[world.name]["passes"].append([])
        return True

    def _measured(self, world: World) -> bool:
        try:
            times = world.round()
        except Broken as fault:
            self._failed(world.name, fault, world)
            return False
        self.levels[world.name]["passes"][-1].append([round(one * 1e6, 3) for one in times])
        self.done += 1
        return True

    def _tell(self) -> None:
        """Shows the progress, once a round: each change wakes a poll on the measured host."""
        total = self.plan.passes * self.plan.rounds * len(self.plan.levels)
        path = os.path.join(self.job.where, "progress.json")
        folders.write_json(path, {"done": self.done, "of": total}, durable=False)

    def _failed(self, name: str, fault: Broken, world: Optional[World]) -> None:
        self.levels[name].update(error=fault.error, message=fault.message)
        if world is not None:
            self._keep(world)
            world.end()

    def _keep(self, world: World) -> None:
        self.levels[world.name]["debug"] = world.debug()


def collectives(job: Job) -> dict[str, Any]:
    """Runs a collectives job; without torch it says so, and that is a result.

    Returns:
        ``available`` and its ``reason``; else what the ranks are (``torch``, ``backend``,
        ``graphs``, ...) and ``levels``: name -> ``error`` and ``message`` of one that failed,
        ``passes`` (a list of rounds, each the microseconds a call of every size), ``debug``.
    """
    plan = Plan.read(job.request)
    if importlib.util.find_spec("torch") is None:
        return {
            "available": False,
            "reason": "no_torch",
            "message": f"{sys.executable} has no torch: nothing was timed",
            "levels": {},
        }
    return Screen(job, plan).run()
