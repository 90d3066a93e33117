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


def view_state(sweep_run: str, metrics: tuple[str, ...]) -> str:
    """The state: runs of one sweep run, grouped by setting, one line chart per metric."""
    section = "eagle3-section"
    charts = [
        {
            "uuid": f"eagle3-{number}",
            "type": "LINE",
            "runsCountToCompare": 20,
            "metricSectionId": section,
            "deleted": False,
            "isGenerated": False,
            "displayName": f"{metric} over concurrency",
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
        for number, metric in enumerate(metrics)
    ]
    return json.dumps(
        {
            "searchFilter": f"tags.sweep_run = '{sweep_run}'",
            "orderByKey": "attributes.start_time",
            "orderByAsc": False,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "runsHiddenMode": "SHOWALL",
            "useGroupedValuesInCharts": True,
            "groupBy": {
                "aggregateFunction": "average",
                "groupByKeys": [{"mode": "tag", "groupByData": "setting"}],
            },
            "compareRunSections": [
                {
                    "uuid": section,
                    "name": "over concurrency",
                    "display": True,
                    "isReordered": True,
                    "deleted": False,
                    "isGenerated": False,
                    "columns": 1,
                    "cardHeight": 470,
                }
            ],
            "compareRunCharts": charts,
        }
    )


def query() -> str:
    """What the address needs to open that view."""
    words = {
        "workflowType": "machine_learning",
        "compareRunsMode": "CHART",
        "viewStateShareKey": KEY,
    }
    return urlencode(words)
