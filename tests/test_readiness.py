"""A server is ready when it generates, and every other state has its own name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.readiness import Answer, Facts, judge, missing_processes, served_model

TEXT = '{"text": " Paris, a city", "meta_info": {"completion_tokens": 4}}'
GOOD = Answer(10, "/generate", 200, TEXT)
REFUSED = Answer(1, "/model_info", None, "connection refused")
MODEL = Answer(2, "/model_info", 200, '{"model_path": "/srv/models/k25"}')
EIGHT = ("launch_server", "sglang::scheduler x8", "sglang::detokenizer")


def state(*answers: Answer, **more: object) -> str:
    return judge(Facts(answers=answers, **more)).state  # type: ignore[arg-type]


def test_a_generated_token_is_what_makes_ready():
    assert state(MODEL, GOOD, alive=True, log_ready=True) == "ready"
    assert judge(Facts(answers=(GOOD,))).ready


def test_neither_the_log_line_nor_a_healthy_port_is_enough():
    assert state(log_ready=True) == "starting"
    assert state(Answer(1, "/health", 200), log_ready=True) == "starting"
    assert not judge(Facts(answers=(MODEL,), log_ready=True)).ready


def test_refused_and_503_are_starting():
    assert state() == "starting"
    assert state(REFUSED) == "starting"
    assert state(REFUSED, Answer(2, "/health", 503)) == "starting"
    assert state(Answer(3, "/generate", None, "connection refused")) == "starting"


def test_a_slow_first_generation_becomes_ready():
    slow = Answer(5, "/generate", None, "timeout", 30)
    assert state(MODEL, slow, log_ready=True) == "not_generating"
    assert state(MODEL, slow, GOOD, log_ready=True) == "ready"


def test_our_dead_process_outranks_whatever_answers_on_the_port():
    judged = judge(Facts(alive=False, log_ready=True, answers=(GOOD,)))
    assert judged.state == "dead"
    assert judged.final
    assert "another process" in judged.reason
    assert state(GOOD, running=()) == "dead"


def test_missing_schedulers_outrank_a_healthy_port():
    health = Answer(1, "/health_generate", 200)
    assert state(health, running=("launch_server",), expected=EIGHT) == "scheduler_dead"
    running = ("launch_server", *(f"sglang::scheduler_TP{i}" for i in range(8)), "sglang::detoken")
    assert state(GOOD, running=running, expected=EIGHT) == "ready"
    assert missing_processes(EIGHT, running[:-2]) == (
        "sglang::scheduler (7 of 8)",
        "sglang::detokenizer (0 of 1)",
    )


def test_another_model_on_the_port_is_refused():
    assert state(MODEL, GOOD, model="/srv/models/other") == "wrong_model"
    assert state(MODEL, GOOD, model="/srv/models/k25/") == "ready"
    listed = Answer(1, "/v1/models", 200, '{"data": [{"id": "otter", "root": "/srv/models/k25"}]}')
    assert state(listed, GOOD, model="/srv/models/k25") == "ready"
    assert state(listed, GOOD, model="otter") == "ready"
    assert state(GOOD, model="/srv/models/k25") == "ready"


def test_the_last_answer_about_the_model_counts():
    other = Answer(3, "http://127.0.0.1:30000/model_info", 200, '{"model_path": "/b"}')
    assert served_model((MODEL, other)) == ("/b",)
    assert served_model((MODEL, Answer(3, "/model_info", 503, "x"))) == ("/srv/models/k25",)


def test_rubbish_is_not_ready():
    assert state(Answer(1, "/generate", 200, '{"text": "!!!!!!!!!!!!"}')) == "garbage_output"


@pytest.mark.parametrize("answer", [
    Answer(3, "/generate", 200, '{"text": ""}'),
    Answer(3, "/generate", 500, "boom"),
    Answer(3, "/generate", 200, "<html>"),
])  # fmt: skip
def test_an_answer_without_a_token_is_not_generating(answer):
    assert state(MODEL, answer, log_ready=True) == "not_generating"


def test_a_busy_server_is_not_torn_down_while_its_log_moves():
    failed = Answer(60, "/health", 503)
    assert state(GOOD, failed, progress=True) == "busy"
    assert state(GOOD, failed, progress=False) == "not_generating"
    assert state(GOOD, failed, Answer(90, "/health", 200), progress=True) == "busy_then_ok"
    assert state(GOOD, Answer(60, "/generate", None, "timeout"), progress=True) == "busy"


def test_waiting_ends():
    assert state(REFUSED, waited_s=901, wait_limit_s=900) == "timeout"
    assert state(REFUSED, silent_s=601, silent_limit_s=600) == "timeout"
    assert state(REFUSED, silent_s=599, silent_limit_s=600) == "starting"
    assert state(GOOD, waited_s=901, wait_limit_s=900) == "ready"
    assert state(alive=False, waited_s=901, wait_limit_s=900) == "dead"


TEXTS = st.sampled_from(["", TEXT, "timeout", "{", '{"text": 3}', '{"data": [1]}']) | st.text(
    max_size=9
)
ANSWERS = st.builds(
    Answer,
    st.integers(0, 99),
    st.sampled_from(["/generate", "/health", "/model_info", "/v1/models", "", "?", "http://x"]),
    st.none() | st.sampled_from([200, 400, 503]),
    TEXTS,
)


@given(st.lists(ANSWERS, max_size=6), st.none() | st.booleans(), st.none() | st.booleans())
def test_every_transcript_has_a_state_and_ready_needs_a_token(answers, alive, log_ready):
    judged = judge(Facts(alive=alive, log_ready=log_ready, answers=tuple(answers)))
    assert judged.reason
    if judged.ready:
        assert alive is not False
        assert any(a.path == "/generate" and a.body == TEXT and a.status == 200 for a in answers)
