"""What happens in the week, night by night, and what was seen of it."""

from __future__ import annotations

import os
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.rehearsal import hosting
from infra.services import running
from infra.store import RunFolder, Store, read_json
from tests.agent_host import until
from tests.sweeping import probes
from tests.week.site import WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sweeping import Ground
    from tests.week.quick import Week
    from tests.week.site import Site

OVER = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}
KILLED, REBOOTED, NO_MLFLOW = 2, 4, 5
"""In which night that begins something happens."""
_BOUND_S = 900.0
_LAST_REAPERS = 2


class Story:
    """Follows the nights and interferes."""

    def __init__(self, site: Site, week: Week, say: Callable[[str], None]) -> None:
        self._site, self._week, self._say = site, week, say
        self._deployment = site.server.ask("deployments/name/eagle3-sweep/overnight")["id"]
        self.told: list[tuple[datetime, str]] = []
        self.begun: list[int] = []
        """Nights, in the order in which they began."""
        self.ended: list[int] = []
        self.kept_out: int | None = None
        """What MLflow had of the night without it, as it came back."""

    def note(self, text: str) -> None:
        """Something that happened now."""
        self.told.append((datetime.now(UTC), text))
        self._say(f"{datetime.now(UTC):%H:%M:%S} {text}")

    def play(self) -> None:
        """From the first evening to the last morning."""
        for turn in range(1, self._week.nights + 1):
            if turn == NO_MLFLOW:
                for number in self.begun:
                    self._over(number)
                self._site.stop("mlflow")
                self.note("MLflow is stopped")
            number = self._next()
            self.note(f"night {number} is running")
            if turn == KILLED:
                self._kill(number)
            if turn == REBOOTED:
                self._reboot(number)
            if turn == NO_MLFLOW:
                self._over(number)
                until(lambda at=number: len(self.mornings()) >= at, _BOUND_S)
                self.kept_out = self._in_mlflow(number)
                self._site.start("mlflow")
                self.note("MLflow is there again: the morning's message has come")
        for number in self.begun:
            self._over(number)
        self.note("all nights are over")
        until(lambda: len(self.mornings()) >= self._week.nights, _BOUND_S)
        self.note("all mornings have come")

    def _next(self) -> int:
        """Waits for another night to begin: one that had to wait may come after a later one."""

        def begun() -> int | None:
            going = [
                (run["start_time"], number)
                for number, run in enumerate(self.nights(), start=1)
                if run["start_time"] and number not in self.begun
            ]
            return min(going)[1] if going else None

        self.begun.append(until(begun, _BOUND_S))
        return self.begun[-1]

    def _in_mlflow(self, number: int) -> int:
        """How many runs MLflow's database has of a night, MLflow itself being away."""
        folder = self.folder(self.night(number)["id"])
        assert folder is not None
        query = (
            f"SELECT count(*) FROM tags WHERE key = 'eagle3.key' AND value LIKE '{folder.holder}%'"
        )
        return int(self._site.database.ask("mlflow", query))

    def nights(self) -> list[Any]:
        """The flow runs of the nights that the schedule has made, by planned time."""
        wanted = {"flow_runs": {"deployment_id": {"any_": [self._deployment]}}}
        found = self._site.server.ask("flow_runs/filter", wanted | {"limit": 200})
        return sorted(found, key=lambda run: run["expected_start_time"])

    def night(self, number: int) -> Any:
        """The flow run of one night; None before the schedule has made it."""
        found = self.nights()
        return found[number - 1] if len(found) >= number else None

    def mornings(self) -> list[Any]:
        """The morning messages that came."""
        return [
            m for m in list(self._site.hook.messages) if m["subject"].startswith("eagle3-sweep:")
        ]

    def folder(self, flow_run: str) -> RunFolder | None:
        """The run folder of a night."""
        for run in self.folders():
            if flow_run in read_json(run.path / "run.json").get("flow_runs", []):
                return run
        return None

    def folders(self) -> list[RunFolder]:
        """All run folders of the week."""
        return Store(self._site.place / "runs").runs(self._week.sweep)

    def settled(self) -> None:
        """Waits until nothing goes on: the last reaper has been, and MLflow has what it missed."""
        begun = datetime.now(UTC).isoformat()
        query = (
            "SELECT count(*) FROM flow_run r JOIN flow f ON f.id = r.flow_id WHERE f.name = "
            f"'eagle3-reaper' AND r.state_type = 'COMPLETED' AND r.start_time > '{begun}'"
        )
        until(lambda: int(self._site.database.ask("prefect", query)) >= _LAST_REAPERS, _BOUND_S)
        self._site.rest()
        query = (
            "SELECT count(*) FROM flow_run WHERE state_type IN ('RUNNING', 'PENDING', 'CANCELLING')"
        )
        until(lambda: int(self._site.database.ask("prefect", query)) == 0, _BOUND_S)
        self.note("nothing goes on any more")

    def _over(self, number: int) -> None:
        def over() -> bool:
            run = self.night(number)
            # Crashed is not the end of a night if somebody goes on with it.
            return run is not None and run["state_type"] in OVER and self.reported(run["id"])

        until(over, _BOUND_S)
        if number not in self.ended:
            self.ended.append(number)
            self.note(f"night {number} is over: {self.night(number)['state']['name']}")

    def reported(self, flow_run: str) -> bool:
        """Whether a night has its report."""
        run = self.folder(flow_run)
        return run is not None and (run.path / "report" / "report.html").is_file()

    def _probing(self, number: int) -> tuple[Ground, str]:
        """A host on which a trial of this night is in the middle of its probe, and the attempt."""
        run = self.night(number)["id"]

        def found() -> Any:
            folder = self.folder(run)
            for attempt in folder.trials() if folder else ():
                if attempt.finished or folder is None:
                    continue
                for ground in self._site.grounds.values():
                    place = ground.root / "trials" / folder.marker(attempt)
                    if probes(place):
                        return ground, attempt.path.name
            return None

        return until(found, _BOUND_S)  # type: ignore[no-any-return]

    def _kill(self, number: int) -> None:
        ground, attempt = self._probing(number)
        folder = self.folder(self.night(number)["id"])
        assert folder is not None
        pid = int(read_json(folder.path / "run.json")["pid"])
        line = _ancestors(pid)
        (worker,) = (name for name in WORKERS if (running(name) or {}).get("pid") in line)
        known = running(worker)
        assert known is not None
        family = [known["pid"], *_descendants(known["pid"])]
        for process in family:
            os.kill(process, signal.SIGKILL)
        self.note(
            f"{worker} is killed with SIGKILL, and the {len(family) - 1} processes below it, "
            f"while {attempt} is probed on {ground.host.name}"
        )
        threading.Timer(self._week.apart_s, self._revive, [worker]).start()

    def _revive(self, worker: str) -> None:
        self._site.start(worker)
        self.note(f"{worker} is started again")

    def _reboot(self, number: int) -> None:
        ground, attempt = self._probing(number)
        hosting.reboot(ground.ready)
        self.note(f"{ground.host.name} is rebooted while {attempt} is probed there")


def _parents() -> dict[int, int]:
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        found[int(stat.parent.name)] = int(fields[1])
    return found


def _ancestors(pid: int) -> list[int]:
    parents, line = _parents(), [pid]
    while line[-1] in parents:
        line.append(parents[line[-1]])
    return line


def _descendants(pid: int) -> list[int]:
    parents = _parents()
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]
