"""The endpoint that keeps time tells the truth, and our load client agrees with it."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from statistics import median

import pytest

from infra.agent_file import agent_file
from infra.rehearsal.dialects import DIALECTS
from infra.rehearsal.paced import Pace
from infra.rehearsal.pacing import pacing, truth
from tasks.measure import measure
from tasks.samples import read_samples


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    with pacing(tmp_path_factory.mktemp("paced")) as endpoint:
        yield endpoint


def ask(endpoint, path: str) -> tuple[int, list[bytes], list[float]]:
    """One request; its status, its events and when each was read."""
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    connection.request("POST", path, json.dumps({"prompt": "x", "text": "x", "stream": True}))
    answer = connection.getresponse()
    events, times = [], []
    while line := answer.readline():
        if line.strip():
            events.append(line.strip().removeprefix(b"data: "))
            times.append(time.monotonic())
    connection.close()
    return answer.status, events, times


@pytest.mark.parametrize("path", sorted(DIALECTS))
def test_every_dialect_tells_all_tokens_and_how_many_there_were(endpoint, path):
    endpoint.set_pace(Pace(step_s=0.002, tokens_per_step=3, first_s=0, shortest=20, longest=20))
    status, events, _ = ask(endpoint, path)
    assert (status, events.pop()) == (200, b"[DONE]")
    told = [json.loads(event) for event in events]
    if path == "/generate":
        assert [one["meta_info"]["completion_tokens"] for one in told] == [*range(1, 20, 3), 20]
        assert (len(told[-1]["output_ids"]), len(told[-1]["text"])) == (20, 40)
        assert told[-1]["meta_info"]["finish_reason"]["type"] == "stop"
        return
    assert told.pop()["usage"]["completion_tokens"] == 20
    choices = [one["choices"][0] for one in told]
    texts = [choice.get("text") or choice["delta"]["content"] for choice in choices]
    assert [len(text) // 2 for text in texts] == [1, *[3] * 6, 1]
    assert [choice["finish_reason"] for choice in choices] == [*[None] * 7, "stop"]


def test_a_pace_with_an_unknown_key_is_refused(endpoint):
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    connection.request("POST", "/pace", '{"steps": 1}')
    assert connection.getresponse().status == 400
    connection.close()


@pytest.mark.alone
def test_what_it_says_of_its_times_is_what_a_reader_sees(endpoint):
    endpoint.set_pace(Pace(step_s=0.02, first_s=0.1, first_spread_s=0, shortest=30, longest=30))
    sent = time.monotonic()
    _, _, seen = ask(endpoint, "/generate")
    (told,) = endpoint.account()["answers"]
    assert sent <= told["arrived"] <= told["times"][0] <= seen[0]
    assert told["times"][0] - told["arrived"] == pytest.approx(0.1, abs=0.01)
    lags = [read - wrote for read, wrote in zip(seen, told["times"], strict=False)]
    assert min(lags) >= 0
    assert sorted(lags)[len(lags) // 2] < 0.002
    steps = told["times"][-1] - told["times"][1]
    assert steps == pytest.approx(28 * 0.02, rel=0.02)


@pytest.mark.alone
def test_our_client_agrees_with_it_within_one_percent(endpoint, tmp_path):
    endpoint.set_pace(Pace(step_s=0.01, first_s=0.4, first_spread_s=0.1))
    job = tmp_path / "jobs" / "probe"
    job.mkdir(parents=True)
    payload = {"text": "x", "sampling_params": {"max_new_tokens": 160}, "stream": True}
    request = {
        "base_url": endpoint.url,
        "path": "/generate",
        "concurrency": 8,
        "timeout_s": 30,
        "deadline_s": 60,
        "requests": [{"id": f"r{n}", "kind": "text", "payload": payload} for n in range(16)],
    }
    (job / "request.json").write_text(json.dumps(request))
    agent = tmp_path / agent_file().name
    agent.write_bytes(agent_file().data)
    words = json.dumps({"dir": str(tmp_path), "name": "probe", "job": "drive"})
    subprocess.run([sys.executable, agent, "run-job", words], check=True, timeout=60)
    samples = read_samples((job / "samples.jsonl").read_text().splitlines(), 1.0)
    ours, account = measure(samples, "probe", 8, speculating=False), endpoint.account()
    true, answers = truth(account), account["answers"]
    assert (ours.completed, ours.failed, true.requests, true.broken) == (16, 0, 16, 0)
    assert ours.completion_tokens == true.tokens
    assert ours.full_output_tok_s == pytest.approx(true.output_tok_s, rel=0.01)
    assert ours.ttft_s is not None
    assert ours.tpot_s is not None
    ttft = median(one["times"][0] - one["arrived"] for one in answers)
    assert ours.ttft_s.p50 == pytest.approx(ttft, rel=0.01)
    tpot = median((one["times"][-1] - one["times"][0]) / (one["limit"] - 1) for one in answers)
    assert ours.tpot_s.p50 == pytest.approx(tpot, rel=0.01)


@pytest.mark.alone
def test_a_request_that_it_could_not_read_at_once_counts_from_when_it_came(endpoint):
    endpoint.set_pace(Pace(step_s=0.002, first_s=0.3, first_spread_s=0, shortest=4, longest=4))
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    connection.connect()
    os.kill(endpoint.pid, signal.SIGSTOP)
    sent = time.monotonic()
    connection.request("POST", "/generate", "{}")
    # What lay unread is what is tested; a stopped process can be waited for in no other way.
    select.select([], [], [], 0.2)
    os.kill(endpoint.pid, signal.SIGCONT)
    connection.getresponse().read()
    connection.close()
    (told,) = endpoint.account()["answers"]
    assert told["arrived"] - sent == pytest.approx(0, abs=0.05)
