"""An MLflow client in memory with the server's rules, which fails as a script says."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mlflow.entities import Metric, Param, RunTag


class ScriptedMlflow:
    """Keeps what is logged; each call first takes its next entry of the script, if it has one."""

    def __init__(self, script: Mapping[str, Sequence[str | None]] | None = None) -> None:
        self._script = {name: list(faults) for name, faults in (script or {}).items()}
        self.calls: Counter[str] = Counter()
        self.experiments: dict[str, Any] = {}
        self.runs: dict[str, Any] = {}
        self.points: dict[str, list[Metric]] = defaultdict(list)
        self.files: dict[str, set[str]] = defaultdict(set)
        self.experiment_tags: dict[str, str] = {}
        """As they were last set, of whatever experiment."""
        self.param_limit = 6000

    def __getattr__(self, name: str) -> Callable[..., Any]:
        work = getattr(type(self), f"_do_{name}", None)
        if work is None:
            raise AttributeError(name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            faults = self._script.get(name)
            if faults and (fault := faults.pop(0)):
                raise RuntimeError(fault)
            return work(self, *arguments, **named)

        return call

    def _do_get_experiment_by_name(self, name: str) -> Any:
        return self.experiments.get(name)

    def _do_create_experiment(self, name: str) -> str:
        found = SimpleNamespace(experiment_id=str(len(self.experiments)), lifecycle_stage="active")
        self.experiments[name] = found
        return str(found.experiment_id)

    def _do_set_experiment_tag(self, _experiment: str, key: str, value: str) -> None:
        self.experiment_tags[key] = value

    def _do_search_runs(self, experiments: list[str], *, filter_string: str, **_: Any) -> list[Any]:
        key = filter_string.split("'")[1]
        return [run for run in self.runs.values() if run.data.tags["eagle3.key"] == key]

    def _do_create_run(
        self, experiment: str, *, run_name: str, start_time: int, tags: dict[str, str]
    ) -> Any:
        info = SimpleNamespace(
            run_id=f"r{len(self.runs)}", status="RUNNING", start_time=start_time, end_time=None
        )
        data = SimpleNamespace(params={}, metrics={}, tags=dict(tags))
        run = self.runs[info.run_id] = SimpleNamespace(info=info, data=data)
        return run

    def _do_log_batch(
        self, run_id: str, *, metrics: list[Metric], params: list[Param], tags: list[RunTag]
    ) -> None:
        data = self.runs[run_id].data
        for param in params:
            if len(param.value) > self.param_limit:
                raise RuntimeError(
                    f"Param value '{param.value[:9]}' had length {len(param.value)}, which "
                    f"exceeded length limit of {self.param_limit}"
                )
            if data.params.setdefault(param.key, param.value) != param.value:
                raise RuntimeError("INVALID_PARAMETER_VALUE: Changing param values is not allowed.")
        data.tags |= {tag.key: tag.value for tag in tags}
        for point in metrics:
            data.metrics[point.key] = point.value
            self.points[point.key].append(point)

    def _do_get_metric_history(self, run_id: str, key: str) -> list[Metric]:
        return self.points[key]

    def _do_set_terminated(self, run_id: str, *, status: str, end_time: int) -> None:
        info = self.runs[run_id].info
        info.status, info.end_time = status, end_time

    def _do_log_artifacts(self, run_id: str, folder: str) -> None:
        self.files[run_id] |= {path.name for path in Path(folder).iterdir()}

    def _do_log_text(self, run_id: str, text: str, name: str) -> None:
        self.files[run_id].add(name)
