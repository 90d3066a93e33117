"""MLflow, the index that people look at: written from the run folder, idempotently.

The one door to mlflow. Always through MlflowClient with an explicit run id: the fluent API is
thread-local and makes stray runs left RUNNING (measured, 3.17).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from infra import chart_view
from infra.errors import WorldError
from infra.fits_mlflow import PARAM_LIMIT, TAG_LIMIT, fit, merge_params, told_limit
from infra.services import LOOPBACK, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

# Read by mlflow when it is first imported; a night must not wait minutes for a server that is down.
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # two lines a trial, amid our own
    "DO_NOT_TRACK": "true",
}
_PASSING = (
    "database is locked",  # mlflow#6490: several writers on SQLite
    "duplicate column name",  # two processes migrating a new database at once (hydraflow#245)
    "alembic_version",
    "already exists",
    "temporarily_unavailable",
    "Service Unavailable",
    "Too Many Requests",
    "reset by peer",
    "eadlock",  # PostgreSQL's and MySQL's
)
_MIGRATING = ("duplicate column name", "alembic_version", "no such table")
_MIGRATING_HINT = "create the database once before starting parallel runs: eagle3-sweep up"
NOTE = "mlflow.note.content"
"""The tag that MLflow shows as description of a run or an experiment."""
# A server that is not there is not asked again for every trial: each try costs seconds.
_AWAY = ("Max retries exceeded", "Connection refused", "Connection aborted", "timed out")
_AWAY_S = 30.0


def tracking_uri() -> str | None:
    """Where MLflow is: MLFLOW_TRACKING_URI, or the server that `eagle3-sweep up` started."""
    chosen = os.environ.get("MLFLOW_TRACKING_URI")
    if chosen:
        return chosen
    known = running("mlflow")
    return f"http://{LOOPBACK}:{known['port']}" if known else None


class TrackingDown(WorldError):
    """MLflow did not take it. Never the end of a night: nothing is lost."""

    kept = "the run folder keeps it; eagle3-sweep publish brings it later"


class RunEntry(NamedTuple):
    """One run as it shall stand in MLflow."""

    experiment: str
    name: str
    key: str
    """Tag `eagle3.key`: the same entry published twice is one run."""
    params: Mapping[str, str]
    metrics: Iterable[tuple[str, float | None, int]]
    tags: Mapping[str, str]
    artifacts: Path | None
    """A folder whose files become artifacts."""
    status: str
    """FINISHED, FAILED or KILLED."""
    start_ms: int
    end_ms: int


class Tracker:
    """Writes runs into one MLflow."""

    def __init__(
        self,
        uri: str,
        *,
        note: Callable[[str], None] | None = None,
        pause: Callable[[float], None] = time.sleep,
        client: Any = None,
    ) -> None:
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        self.uri = uri
        self._note = note or (lambda _text: None)
        self._pause = pause
        self._client = client
        self._away_until = 0.0
        self._limits = {"param_limit": PARAM_LIMIT, "tag_limit": TAG_LIMIT}
        self._experiments: dict[str, str] = {}

    @property
    def client(self) -> Any:
        """The MlflowClient, made when first used (importing mlflow costs seconds)."""
        if self._client is None:
            from mlflow import MlflowClient

            self._client = MlflowClient(tracking_uri=self.uri)
        return self._client

    def ask_again(self) -> None:
        """Forgets that the server did not answer a moment ago: a night's last chance."""
        self._away_until = 0.0

    def publish(self, entry: RunEntry) -> str:
        """Writes one run, or brings the one that stands up to date; returns its id.

        Raises:
            TrackingDown: The server did not take it.
        """
        return str(self.patiently(lambda: self._publish(entry)))

    def experiment(self, name: str) -> str:
        """The id of an experiment, made if need be."""
        if name not in self._experiments:
            found = self.client.get_experiment_by_name(name)
            if found is None:
                self._experiments[name] = self.client.create_experiment(name)
            else:
                if found.lifecycle_stage == "deleted":
                    self.client.restore_experiment(found.experiment_id)
                self._experiments[name] = found.experiment_id
        return self._experiments[name]

    def link(self, experiment: str, run_id: str | None = None) -> str:
        """The address of an experiment or a run in the UI; empty for a plain database.

        Raises:
            TrackingDown: The server did not say which experiment that is.
        """
        if not self.uri.startswith("http"):
            return ""
        number = self.patiently(lambda: self.experiment(experiment))
        base = f"{self.uri.rstrip('/')}/#/experiments/{number}"
        return f"{base}/runs/{run_id}" if run_id else f"{base}/runs"

    def chart_link(self, experiment: str) -> str:
        """The address of an experiment's charts, where throughput is drawn over concurrency.

        Raises:
            TrackingDown: As for :meth:`link`.
        """
        link = self.link(experiment)
        return f"{link}?{chart_view.query()}" if link else ""

    def show_first(self, experiment: str, sweep_run: str, metrics: tuple[str, ...]) -> None:
        """Makes the charts open with these metrics over concurrency, of one sweep run.

        Raises:
            TrackingDown: The server did not take it.
        """
        state = chart_view.view_state(sweep_run, metrics)
        self.patiently(
            lambda: self.client.set_experiment_tag(
                self.experiment(experiment), chart_view.TAG, state
            )
        )

    def describe(self, experiment: str, text: str) -> None:
        """Sets what stands on top of an experiment's page, as Markdown.

        Raises:
            TrackingDown: The server did not take it.
        """
        fitted = text if len(text) <= chart_view.LIMIT else f"{text[: chart_view.LIMIT - 3]}..."
        self.patiently(
            lambda: self.client.set_experiment_tag(self.experiment(experiment), NOTE, fitted)
        )

    def patiently(self, attempt: Callable[[], Any], *, attempts: int = 4) -> Any:
        """Tries again where a passing fault is known; anything else is TrackingDown."""
        if time.monotonic() < self._away_until:
            raise TrackingDown(f"{self.uri}: did not answer a moment ago")
        for number in range(1, attempts + 1):
            try:
                return attempt()
            except Exception as error:
                # mlflow lets through its own, requests', sqlalchemy's and OS errors alike.
                said = str(error)
                self._experiments.clear()  # one may have been deleted in the UI
                if any(words in said for words in _AWAY):
                    self._away_until = time.monotonic() + _AWAY_S
                if not any(words in said for words in _PASSING) or number == attempts:
                    raise TrackingDown(f"{self.uri}: {_first_line(error)}") from error
                self._note(f"MLflow: {_first_line(error)}; attempt {number + 1}")
                if any(words in said for words in _MIGRATING):
                    self._note(f"MLflow: {_MIGRATING_HINT}")
            self._pause(0.2 * 2**number)
        raise AssertionError  # the loop returns or raises

    def _publish(self, entry: RunEntry) -> str:
        try:
            return self._write(entry)
        except Exception as error:
            # An older server refuses the whole batch for one long value, and says its limit.
            limit = told_limit(str(error))
            kind = "tag_limit" if "tag" in str(error).lower() else "param_limit"
            if limit is None or limit >= self._limits[kind]:
                raise
            self._limits[kind] = limit
        return self._publish(entry)

    def _write(self, entry: RunEntry) -> str:
        experiment = self.experiment(entry.experiment)
        fitted = fit(entry.params, entry.metrics, entry.tags, **self._limits)
        run = self._find(experiment, entry.key)
        if run is None:
            run = self.client.create_run(
                experiment,
                run_name=entry.name,
                start_time=entry.start_ms,
                tags={"eagle3.key": entry.key},
            )
        run_id = run.info.run_id
        self._log(run, fitted.params, fitted.metrics, {**fitted.tags, "mlflow.runName": entry.name})
        # Before the files: where those cannot be stored, the run has its numbers and its end.
        self.client.set_terminated(run_id, status=entry.status, end_time=entry.end_ms)
        if entry.artifacts is not None:
            self.client.log_artifacts(run_id, str(entry.artifacts))
        for name, text in fitted.artifacts.items():
            self.client.log_text(run_id, text, name)
        for warning in fitted.warnings:
            self._note(f"{entry.name}: {warning}")
        return str(run_id)

    def _log(
        self,
        run: Any,
        params: Mapping[str, str],
        metrics: Iterable[tuple[str, float, int]],
        tags: Mapping[str, str],
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        run_id = run.info.run_id
        new = merge_params(run.data.params, params)
        stamp = int(time.time() * 1000)
        values = [
            Metric(key, value, stamp, step)
            for key, value, step in metrics
            if not self._has_metric(run, key, value, step)
        ]
        self.client.log_batch(
            run_id,
            metrics=values,
            params=[Param(key, value) for key, value in new.items()],
            tags=[RunTag(key, value) for key, value in tags.items()],
        )

    def _has_metric(self, run: Any, key: str, value: float, step: int) -> bool:
        """Whether this point stands already; a second one would double it in charts."""
        if key not in run.data.metrics:
            return False
        history = self.client.get_metric_history(run.info.run_id, key)
        return any(point.step == step and point.value == value for point in history)

    def _find(self, experiment: str, key: str) -> Any:
        found = self.client.search_runs(
            [experiment], filter_string=f"tags.`eagle3.key` = '{key}'", max_results=1
        )
        return found[0] if found else None


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0][:300] if text else type(error).__name__
