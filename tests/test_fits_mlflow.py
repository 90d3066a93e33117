"""What goes to MLflow is what it takes; what did not fit is said and kept elsewhere."""

from __future__ import annotations

import math
import posixpath
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.fits_mlflow import KEY_LIMIT, fit, merge_params, told_limit

NAMES = st.one_of(st.text(max_size=30), st.text("a/.\\@_", max_size=12), st.just("k" * 400))


def accepted(name: str) -> bool:
    """MLflow's own rule (mlflow/utils/validation.py, 3.17)."""
    path = posixpath.normpath(name)
    unique = path == name and path != "." and not path.startswith(("..", "/"))
    return bool(re.match(r"^[/\w.\- :]+$", name)) and unique and len(name) <= KEY_LIMIT


@given(st.dictionaries(NAMES, st.text(max_size=30), max_size=8))
def test_every_name_is_one_that_mlflow_takes_and_none_hides_another(params):
    fitted = fit(params, [], {}, param_limit=20)
    assert all(accepted(key) for key in fitted.params)
    assert sorted(fitted.params.values()) == sorted(v[:20] for v in params.values())
    assert {k for k in params if not accepted(k)} <= set(fitted.renamed)


@given(st.lists(st.tuples(NAMES, st.none() | st.floats(), st.integers(0, 512)), max_size=8))
def test_no_figure_is_invented_or_lost_in_silence(metrics):
    fitted = fit({}, metrics, {})
    finite = [(v, s) for _, v, s in metrics if v is not None and math.isfinite(v)]
    assert [(value, step) for _, value, step in fitted.metrics] == finite
    strange = {name for name, v, _ in metrics if v is not None and not math.isfinite(v)}
    assert bool(strange) == ("not_finite" in fitted.tags)
    assert all(math.isfinite(value) for _, value, _ in fitted.metrics)


def test_one_metric_keeps_one_name_over_its_steps():
    fitted = fit({}, [("tok/s@c", 1.0, 1), ("tok/s@c", 2.0, 8), ("tok/s_c", 3.0, 1)], {})
    assert [name for name, _, _ in fitted.metrics] == ["tok/s_c", "tok/s_c", "tok/s_c_2"]
    assert any("tok/s@c" in warning for warning in fitted.warnings)


def test_a_long_value_is_cut_kept_whole_in_a_file_and_said():
    command = "x" * 9000
    fitted = fit({"command": command, "a": "b"}, [], {}, param_limit=500)
    assert len(fitted.params["command"]) == 500
    assert fitted.artifacts == {"command.txt": command}
    assert fitted.cut == {"command": 500}
    assert fitted.warnings == ["command cut in params, full text in artifact command.txt"]


def test_a_long_tag_is_cut_kept_whole_and_said_as_well():
    fitted = fit({}, [], {"why/long": "y" * 9000, "short": "y"})
    assert len(fitted.tags["why/long"]) == 8000
    assert fitted.artifacts == {"why_long.txt": "y" * 9000}
    assert "cut in tags" in fitted.warnings[0]


def test_what_is_not_a_number_is_named_in_a_tag():
    metrics = [("b", math.inf, 0), ("a", math.nan, 1), ("a", math.nan, 2), ("c", 1.0, 0)]
    fitted = fit({}, metrics, {})
    assert fitted.tags == {"not_finite": "a,b"}
    assert fitted.metrics == [("c", 1.0, 0)]


def test_a_param_that_stands_with_another_value_goes_beside_it():
    assert merge_params({"n": "24"}, {"n": "5", "m": "1"}) == {"effective.n": "5", "m": "1"}
    assert merge_params({"n": "24"}, {"n": "24"}) == {}
    assert merge_params({"n": "24", "effective.n": "5"}, {"n": "5"}) == {}
    known = {"n": "24", "effective.n": "5"}
    assert merge_params(known, {"n": "6"}) == {"effective.n.2": "6"}


@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), st.sampled_from("123"), max_size=2), max_size=6)
)
def test_publishing_any_values_in_any_order_never_changes_a_param(batches):
    known: dict[str, str] = {}
    for wanted in batches:
        new = merge_params(known, wanted)
        assert not new.keys() & known.keys()
        known |= new
        assert set(wanted.values()) <= set(known.values())
        assert merge_params(known, wanted) == {}


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        ("Param value 'x' had length 501, which exceeded length limit of 500", 500),
        (
            "INVALID_PARAMETER_VALUE: 'params[0].value' exceeds the maximum length of 6000 char",
            6000,
        ),
        ("Connection refused", None),
    ],
)
def test_the_limit_of_an_older_server_is_read_from_its_refusal(said, limit):
    assert told_limit(said) == limit
