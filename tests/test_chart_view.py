"""The view in which MLflow's charts open."""

import json
from urllib.parse import parse_qs

from infra import chart_view


def test_each_probe_is_a_section_with_its_figures_over_concurrency():
    metrics = ("load/output_tok_s", "load/accept_length", "long/output_tok_s")
    state = json.loads(chart_view.view_state("night-0001-ab", metrics))
    assert [section["name"] for section in state["compareRunSections"]] == ["load", "long"]
    assert [chart["metricKey"] for chart in state["compareRunCharts"]] == list(metrics)
    assert {chart["xAxisKey"] for chart in state["compareRunCharts"]} == {"step"}
    sections = {section["uuid"] for section in state["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == sections
    assert "night-0001-ab" in state["searchFilter"]
    assert len(json.dumps(state)) < 5000, "MLflow's limit for an experiment's tag"


def test_the_address_names_the_view():
    found = parse_qs(chart_view.query())
    assert found["viewStateShareKey"] == [chart_view.KEY]
    assert chart_view.TAG.endswith(f".{chart_view.KEY}")
