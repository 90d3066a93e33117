"""What the report says of the traffic and of the answers."""

from __future__ import annotations

import json

from tasks.record import Lengths, Measurement
from tasks.report_outputs import outputs_section
from tests.builders import measurement, record


def test_lengths_ends_and_repetition_stand_in_one_line_a_setting():
    m = measurement(
        output_tokens=Lengths(p50=212, p90=256),
        finish_reasons={"stop": 60, "length": 20},
        unique_ngram_ratio=0.83,
    )
    again = m.model_copy(update={"finish_reasons": {"stop": 40, "length": 40}})
    text = outputs_section([record(measurements=(m,)), record(block=2, measurements=(again,))])
    (line,) = [line for line in text.splitlines() if line.startswith("| load")]
    assert line == "| load | base | 8 | 40 | 212 | 256 | stop 62%, length 38% | 83% |"


def test_what_an_older_record_does_not_hold_is_unknown_and_not_zero():
    old = measurement(prompt_tokens=None, unique_ngram_ratio=None).model_dump(mode="json")
    for name in ("output_tokens", "finish_reasons", "counter_accept_length"):
        del old[name]
    text = outputs_section(
        [record(measurements=(Measurement.model_validate_json(json.dumps(old)),))]
    )
    assert text.splitlines()[-1] == "| load | base | 8 | - | - | - | - | - |"


def test_without_measurements_there_is_no_section():
    assert outputs_section([record(measurements=())]) == ""
