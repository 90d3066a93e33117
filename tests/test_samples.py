"""Reading the load client's rows: every engine version's names, and rows that are not whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.samples import Counts, Reading, output_sha, read_counts, read_rows, read_samples

REAL = Path(__file__).parent / "fixtures" / "real_samples"


def row(id_: str = "p1", **fields: Any) -> str:
    values = {
        "id": id_,
        "kind": "code",
        "sent": 1.0,
        "first": 1.5,
        "last": 3.0,
        "done": 3.25,
        "chunks": [[1.5, 1], [3.0, 12]],
        "meta": {"completion_tokens": 12, "prompt_tokens": 7, "finish_reason": {"type": "length"}},
        "output_ids": list(range(12)),
        "text_tail": "",
        "status": 200,
        "error": None,
    }
    return json.dumps(values | fields)


def from_meta(meta: dict[str, Any], **fields: Any) -> Reading:
    return read_rows([row(meta=meta, output_ids=None, **fields)], 1.0)


@pytest.mark.parametrize(
    ("version", "meta", "counts"),
    [
        (
            "0.5.8",
            {"spec_verify_ct": 4, "spec_accept_token_num": 7, "spec_draft_token_num": 12},
            Counts(4, 7, 12, None),
        ),
        (
            "0.5.9",
            {
                "spec_verify_ct": 4,
                "spec_accept_token_num": 7,
                "spec_draft_token_num": 12,
                "spec_accept_histogram": [1, 1, 0, 2],
            },
            Counts(4, 7, 12, (1, 1, 0, 2)),
        ),
        (
            "0.5.11",
            {
                "spec_verify_ct": 4,
                "spec_accepted_drafts": 7,
                "spec_proposed_drafts": 12,
                "spec_accept_histogram": [1, 1, 0, 2],
            },
            Counts(4, 7, 12, (1, 1, 0, 2)),
        ),
        (
            "0.5.12 without the aliases, and 0.5.23",
            {
                "spec_verify_ct": 4,
                "spec_num_correct_drafts": 7,
                "spec_num_proposed_drafts": 12,
                "spec_correct_drafts_histogram": [1, 1, 0, 2],
            },
            Counts(4, 7, 12, (1, 1, 0, 2)),
        ),
        ("no speculation", {"completion_tokens": 12}, Counts(None, None, None, None)),
        (
            "histogram alone",
            {"spec_accept_histogram": [1, 1, 0, 2]},
            Counts(4, 7, None, (1, 1, 0, 2)),
        ),
    ],
)
def test_counts_are_read_under_the_names_of_every_version(version, meta, counts):
    assert read_counts(meta) == counts, version


@pytest.mark.parametrize("arm", ["eagle3-good", "eagle3-weak"])
def test_counts_of_a_real_engine_agree_with_its_histogram(arm):
    for answer in json.loads((REAL / f"generate-{arm}.json").read_text()):
        told = answer["meta_info"]
        chunks = [[0.4, told["completion_tokens"]]]
        reading = read_rows([row(meta=told, output_ids=answer["output_ids"], chunks=chunks)], 1.0)
        (sample,) = reading.samples
        assert reading.notes == ()
        assert sample.histogram is not None
        assert sample.accepted == sum(k * n for k, n in enumerate(sample.histogram))
        assert sample.verify_steps == sum(sample.histogram)
        assert sample.error is None


def test_a_real_answer_without_speculation_has_no_counts_and_a_loop_ratio():
    answers = json.loads((REAL / "generate-base.json").read_text())
    looping, sound = (
        read_samples([row(meta=a["meta_info"], output_ids=a["output_ids"])], 1.0)[0]
        for a in answers[:2]
    )
    assert (looping.verify_steps, looping.accepted, looping.histogram) == (None, None, None)
    assert looping.cached_tokens == 90
    assert looping.unique_ngram_ratio == pytest.approx(0.196, abs=0.001)
    assert sound.unique_ngram_ratio == pytest.approx(0.963, abs=0.001)


def test_the_accept_length_of_a_real_stream_leaves_the_prefill_token_out():
    lines = (REAL / "stream-eagle3-good.txt").read_text().splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    meta = events[-1]["meta_info"]
    counts = read_counts(meta)
    assert counts.verify_steps is not None
    assert counts.accepted is not None
    assert 1 + counts.accepted / counts.verify_steps == 2.75
    assert meta["spec_accept_length"] == 3.0
    assert meta["completion_tokens"] == 1 + counts.verify_steps + counts.accepted


def test_counts_that_contradict_each_other_are_said_so():
    meta = {
        "completion_tokens": 12,
        "finish_reason": {"type": "length"},
        "spec_verify_ct": 5,
        "spec_num_correct_drafts": 8,
        "spec_accepted_drafts": 7,
        "spec_num_proposed_drafts": 6,
        "spec_correct_drafts_histogram": [1, 1, 0, 2],
        "spec_accept_histogram": [1, 1, 1, 2],
    }
    reading = from_meta(meta)
    kinds = {note.split(":")[0] for note in reading.notes}
    assert kinds == {
        "old and new name of a count disagree",
        "old and new name of the histogram disagree",
        "histogram and verify steps disagree",
        "histogram and accepted drafts disagree",
        "more drafts accepted than proposed",
    }
    assert reading.samples[0].accepted == 8


def test_half_of_the_counts_is_unknown_and_not_a_guess():
    reading = from_meta({"completion_tokens": 12, "spec_verify_ct": 5})
    assert reading.samples[0].verify_steps is None
    assert reading.notes == ("verify steps or accepted drafts missing: 1 row, e.g. p1",)


def test_a_torn_last_line_is_left_out_and_reported():
    reading = read_rows([row("a"), "", row("b"), row("c")[:40]], 1.0)
    assert [s.id for s in reading.samples] == ["a", "b"]
    assert reading.notes == ("torn last line left out: 1 row, e.g. line 4",)


def test_a_broken_line_in_the_middle_is_not_a_torn_end():
    with pytest.raises(ValueError, match="line 1 is not JSON and not the last"):
        read_rows(["{", row()], 1.0)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_time_scale_must_be_positive(scale):
    with pytest.raises(ValueError, match="time scale"):
        read_rows([row()], scale)


@given(st.floats(0.01, 100))
def test_every_time_is_scaled_and_nothing_else(scale):
    (plain,) = read_samples([row()], 1.0)
    (scaled,) = read_samples([row()], scale)
    times = ("sent_s", "first_s", "last_s", "done_s")
    for name in times:
        assert getattr(scaled, name) == pytest.approx(getattr(plain, name) * scale)
    assert scaled.chunks == tuple((t * scale, n) for t, n in plain.chunks)
    rest = set(type(plain).model_fields) - {*times, "chunks"}
    assert all(getattr(scaled, name) == getattr(plain, name) for name in rest)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"error": {"class": "timeout", "message": "600 s"}}, "timeout"),
        # The words of SGLang 0.5.9 for a prompt that is too long, as an answer and in a stream.
        (
            {
                "error": {
                    "class": "http_error",
                    "message": "400: The input (9000 tokens) is longer than the model's context "
                    "length (8192 tokens).",
                }
            },
            "beyond_context",
        ),
        (
            {
                "error": {
                    "class": "aborted",
                    "message": "Requested token count exceeds the model's maximum context length",
                }
            },
            "beyond_context",
        ),
        ({"status": 503, "meta": None}, "http_503"),
        ({"meta": {"completion_tokens": 3, "finish_reason": {"type": "abort"}}}, "aborted"),
        ({"meta": {"completion_tokens": 3, "finish_reason": None}}, "cut_stream"),
        ({"meta": None, "last": None, "first": None, "chunks": []}, "empty_response"),
        ({"meta": {"completion_tokens": 3, "finish_reason": "stop"}}, None),
        ({"meta": None}, None),
    ],
)
def test_what_counts_as_an_error(fields, error):
    (sample,) = read_samples([row(**{"output_ids": None} | fields)], 1.0)
    assert sample.error == error


def test_tokens_come_from_the_last_chunk_where_the_engine_says_nothing():
    (sample,) = read_samples([row(meta=None, output_ids=None)], 1.0)
    assert sample.completion_tokens == 12
    (nothing,) = read_samples([row(meta=None, output_ids=None, chunks=[])], 1.0)
    assert nothing.completion_tokens == 0


def test_the_last_piece_of_a_stream_is_not_taken_for_the_output():
    reading = read_rows([row(output_ids=[9, 10, 11])], 1.0)
    assert reading.samples[0].output_sha is None
    assert reading.samples[0].unique_ngram_ratio is None
    assert reading.notes == ("output ids incomplete: 1 row, e.g. p1: 3 of 12",)


def test_equal_outputs_have_equal_hashes_and_others_do_not():
    assert output_sha([1, 23]) == output_sha([1, 23]) != output_sha([12, 3])


def test_openai_usage_is_understood():
    usage = {"completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}}
    (sample,) = from_meta(usage).samples
    assert (sample.completion_tokens, sample.cached_tokens) == (5, 3)


def test_a_request_id_that_comes_twice_is_reported():
    assert read_rows([row(), row()], 1.0).notes == (
        "request id more than once: 1 row, e.g. p1 (2 times)",
    )


def test_numbers_that_are_no_counts_are_unknown():
    meta = {"completion_tokens": 12, "num_retractions": True, "prompt_tokens": float("inf")}
    (sample,) = from_meta(meta).samples
    assert (sample.retractions, sample.prompt_tokens) == (None, None)


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"id": "a", "sent": 0.0},
        {"id": "a", "sent": 0.0, "done": None},
        {"id": "a", "sent": 0.0, "done": 1.0, "chunks": [0.5]},
    ],
)
def test_a_row_that_the_drive_job_cannot_have_written_says_its_line(row):
    with pytest.raises(ValueError, match="line 1 is not a row of the drive job"):
        read_rows([json.dumps(row)], 1.0)


@pytest.mark.parametrize("odd", [None, [1], "x", 10**400, {"a": 1}, True, -1])
def test_whatever_an_engine_answers_a_sample_is_read(odd):
    good = {"id": "a", "sent": 0.0, "first": 0.1, "last": 0.2, "done": 0.3, "chunks": [[0.1, 1]]}
    names = ("completion_tokens", "spec_verify_ct", "spec_accept_histogram", "finish_reason")
    for meta in (odd, dict.fromkeys(names, odd)):
        (sample,) = read_rows([json.dumps({**good, "meta": meta})], 1.0).samples
        assert sample.histogram in {None, (1,)}
        assert sample.completion_tokens == 1
