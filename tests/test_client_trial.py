"""The engines' own clients over real SSH, on the pretend host: their word stands beside ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from configs.bench_serving import BenchServing
from configs.probe import RandomTokens, streams_of
from configs.read import parse_sweep
from tasks.client_beside import pairs_of
from tests import sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.sweep import Sweep
    from tasks.client_record import ClientRun
    from tests.sweeping import Ground, Tried

CLIENT = BenchServing(of="load", timeout_s=60.0)
_VLLM = """
name: vllm
question: Does it pay on the pretend host?
hosts: [box]
engine:
  kind: vllm
  model: shared/kimi-k2.5-int4
  flags:
    tensor-parallel-size: 8
    gpu-memory-utilization: 0.9
    max-num-seqs: 64
    served-model-name: kimi
    tokenizer: shared/kimi-k2.5-int4
baseline: tuned
arms:
  tuned:
    speculation: {kind: eagle3, drafter: data/eagle3/k25-tuned, num_steps: 3, topk: 1, draft_tokens: 4}
probes:
  load:
    kind: stream
    prompts: mixed
    concurrency: [2]
    requests_per_slot: 3
    min_requests: 4
    sampling: {max_new_tokens: 64, ignore_eos: true}
    template: {kind: none}
    warm_up: {per_slot: 1, max_new_tokens: 4, max_windows: 0}
blocks: 1
patience: {start_s: 30, silence_s: 20, stop_s: 1, gpu_free_s: 5}
"""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("clients"), noise_cv=0.0, time_scale=2.0) as made:
        yield made


def asked(name: str, arm: str = "tuned", **changed: object) -> Sweep:
    sweep = sweeping.sweep(name, arms=arm, tokens=96)
    # Before the probe that measures: it runs after it all the same.
    probes = {"standard": CLIENT.model_copy(update=changed), **sweep.probes}
    return sweep.model_copy(update={"probes": probes})


def close(tried: Tried, run: ClientRun) -> None:
    """Both clients saw one engine: this machine's own noise apart, they tell the same."""
    pairs = {pair.figure.name: pair for pair in pairs_of(run, tried.record.measurements)}
    assert pairs["output_tok_s"].off == pytest.approx(0, abs=0.25)
    assert pairs["tpot_s"].off == pytest.approx(0, abs=0.25)
    assert pairs["accept_length"].off == pytest.approx(0, abs=0.05)


def test_sglang_s_client_repeats_our_probe(ground: Ground) -> None:
    tried = ground.trial(asked("sglang"))
    assert tried.record.status in sweeping.MEASURED, tried.record.failure
    assert [m.probe for m in tried.record.measurements] == ["load"]
    (run,) = tried.record.clients
    assert run.trouble is None
    assert (run.tool, run.release) == ("sglang.bench_serving", "0.5.9")
    assert run.result is not None
    assert (run.result.valid, run.result.completed, run.requests) == (True, 6, 6)
    assert run.result.total_output_tokens == 6 * 96
    assert tried.stages.index("probe:load") < tried.stages.index("probe:standard")
    close(tried, run)
    kept = (tried.folder / "clients" / "client-standard-c2.jsonl").read_text()
    assert "Infinity" in kept, "as the real one writes an unlimited rate"
    assert json.loads(kept)["tag"] == "client-standard-c2"
    assert (tried.folder / "clients" / "client-standard-c2.log").read_text()
    assert ground.empty()


@pytest.mark.long
def test_the_same_texts_are_asked_in_the_same_way(ground: Ground) -> None:
    """The engine's answers hang on the prompt alone, so equal counts are not enough: lengths are
    each prompt's own here, and no answer goes on past its natural end."""
    sweep = asked("natural", arm="base")
    probe = streams_of(sweep.probes)["load"]
    sampling = probe.sampling.model_copy(update={"ignore_eos": False, "max_new_tokens": 200})
    probes = {**sweep.probes, "load": probe.model_copy(update={"sampling": sampling})}
    tried = ground.trial(sweep.model_copy(update={"probes": probes}))
    (run,), (measured,) = tried.record.clients, tried.record.measurements
    assert run.usable is not None
    assert run.usable.total_output_tokens == measured.completion_tokens
    assert run.usable.total_input_tokens == measured.prompt_tokens
    assert run.usable.accept_len is None
    assert measured.natural_stops > 0


@pytest.mark.long
def test_random_tokens_are_its_own_and_claim_no_acceptance(ground: Ground) -> None:
    sweep = asked("noise")
    drawn = {"prompts": "random", "random": RandomTokens(tokens=64)}
    probes = {**sweep.probes, "load": sweep.probes["load"].model_copy(update=drawn)}
    tried = ground.trial(sweep.model_copy(update={"probes": probes}))
    (run,) = tried.record.clients
    assert run.usable is not None, run
    assert run.usable.total_input_tokens == 6 * 64
    assert run.usable.accept_len is None
    assert "random token ids of its own" in run.unmatched


def test_vllm_s_client_repeats_our_probe(ground: Ground) -> None:
    sweep = parse_sweep(_VLLM, "vllm.yaml")
    tried = ground.trial(sweep.model_copy(update={"probes": {**sweep.probes, "standard": CLIENT}}))
    assert tried.record.status in sweeping.MEASURED, tried.record.failure
    (run,) = tried.record.clients
    assert run.trouble is None
    assert run.tool == "vllm bench serve"
    assert "kimi" in run.command, "the server knows its model under that name alone"
    assert run.result is not None
    assert (run.result.valid, run.result.failed, run.result.completed) == (True, 0, 6)
    assert len(run.result.per_position) == 3
    close(tried, run)


@pytest.mark.long
def test_a_server_s_key_reaches_the_client_and_stays_out_of_what_is_kept(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang's client writes the server's arguments into its line, the key among them."""
    monkeypatch.setenv("BENCH_KEY", "sk-4711-only-here")
    tried = ground.trial(asked("keyed", arm="base"), api_key_from="BENCH_KEY")
    (run,) = tried.record.clients
    assert run.usable is not None, run
    assert run.usable.completed == 6
    kept = [path for path in tried.folder.rglob("*") if path.is_file()]
    assert [path.name for path in kept if b"sk-4711-only-here" in path.read_bytes()] == []
    assert "api_key" in (tried.folder / "clients" / "client-standard-c2.jsonl").read_text()


@pytest.mark.long
def test_a_host_without_the_client_costs_the_trial_nothing(ground: Ground) -> None:
    there = ground.folder / "home/site/sglang/bench_serving.py"
    text = there.read_text()
    there.unlink()
    try:
        tried = ground.trial(asked("without", arm="base"))
    finally:
        there.write_text(text)
    assert tried.record.status in sweeping.MEASURED, tried.record.failure
    (run,) = tried.record.clients
    assert run.result is None
    assert run.trouble is not None
    assert "No module named sglang.bench_serving" in run.trouble
    (finding,) = (f for f in tried.record.findings if f.name.startswith("client_f"))
    assert (finding.name, finding.where) == ("client_failed", "standard c2")
    assert finding.tolerated is not None


@pytest.mark.long
@pytest.mark.parametrize("what", ["die", "no_tokens"])
def test_an_engine_that_ends_under_the_client_costs_the_trial_nothing(
    ground: Ground, what: str
) -> None:
    def at(stage: str) -> None:
        if stage == "probe:standard":
            ground.plant("decode", what)

    tried = ground.trial(asked(f"ends-{what}".replace("_", "-"), timeout_s=8.0), at=at)
    record = tried.record
    assert record.status in sweeping.MEASURED, record.failure
    assert [m.probe for m in record.measurements] == ["load"]
    (run,) = record.clients
    assert run.trouble
    assert ground.empty()
