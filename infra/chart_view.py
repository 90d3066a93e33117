"""The view in which MLflow's charts open: throughput over concurrency, one line per setting.

MLflow keeps a shared view of an experiment's runs page as JSON in the experiment's tag
``mlflow.sharedViewState.<key>``, and opens it with ``viewStateShareKey=<key>`` in the address
(seen in 3.17.2). Without it the page opens with every chart in alphabetical order, of all runs.
"""

from __future__ import annotations

import json
from urllib.parse import urlencode

KEY = "eagle3"
TAG = f"mlflow.sharedViewState.{KEY}"
LIMIT = 5000
"""Characters that MLflow takes for an experiment's tag (3.17; one more is refused)."""


def view_state(sweep_run: str, metrics: tuple[str, ...]) -> str:
    """The state: runs of one sweep run, grouped by setting, one line chart per metric.

    A section has the name of its metrics' prefix (the probe): under another name the page puts
    its own section of all charts in front.

    Args:
        sweep_run: Value of the runs' tag ``sweep_run``.
        metrics: ``<probe>/<figure>``, in the order in which their charts stand. The last ones are
            left out where the tag would be too long; the page's search finds them all the same.
    """
    for kept in range(len(metrics), 0, -1):
        state = _state(sweep_run, metrics[:kept])
        if len(state) <= LIMIT:
            return state
    return _state(sweep_run, ())


def _state(sweep_run: str, metrics: tuple[str, ...]) -> str:
    probes = dict.fromkeys(metric.partition("/")[0] for metric in metrics)
    return json.dumps(
        {
            "searchFilter": f"tags.sweep_run = '{sweep_run}'",
            "orderByKey": "attributes.start_time",
            "orderByAsc": False,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "selectedColumns": [],
            "columnOrder": [],
            "columnWidths": {},
            "runsExpanded": {},
            "runsPinned": [],
            "runsHidden": [],
            "runsVisibilityMap": {},
            "runsHiddenMode": "SHOWALL",
            "viewMaximized": False,
            "runListHidden": False,
            "isAccordionReordered": False,
            "useGroupedValuesInCharts": True,
            "hideEmptyCharts": True,
            "groupBy": {
                "aggregateFunction": "average",
                "groupByKeys": [{"mode": "tag", "groupByData": "setting"}],
            },
            "groupsExpanded": {},
            "autoRefreshEnabled": True,
            "globalLineChartConfig": {
                "xAxisKey": "step",
                "lineSmoothness": 0,
                "selectedXAxisMetricKey": "",
            },
            "chartsSearchFilter": "",
            "compareRunSections": [_section(probe) for probe in probes],
            "compareRunCharts": [_chart(metric) for metric in metrics],
        },
        separators=(",", ":"),
    )


def _section(probe: str) -> dict[str, object]:
    return {
        "uuid": f"eagle3-{probe}",
        "name": probe,
        "display": True,
        "isReordered": True,
        "deleted": False,
        "isGenerated": False,
        "columns": 1,
        "cardHeight": 470,
    }


def _chart(metric: str) -> dict[str, object]:
    """A line over steps, which are levels of concurrency."""
    return {
        "uuid": f"eagle3-{metric.replace('/', '-')}",
        "type": "LINE",
        "runsCountToCompare": 20,
        "metricSectionId": f"eagle3-{metric.partition('/')[0]}",
        "deleted": False,
        "isGenerated": False,
        "displayName": f"{metric} against step = users",
        "metricKey": metric,
        "xAxisKey": "step",
        "yAxisKey": "metric",
        "scaleType": "linear",
        "xAxisScaleType": "linear",
        "lineSmoothness": 0,
        "range": {},
        "selectedXAxisMetricKey": "",
        "yAxisExpressions": [],
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }


def query() -> str:
    """What the address needs to open that view."""
    words = {
        "workflowType": "machine_learning",
        "compareRunsMode": "CHART",
        "viewStateShareKey": KEY,
    }
    return urlencode(words)
