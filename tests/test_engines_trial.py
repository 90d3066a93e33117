"""Arms of both engines in one sweep on the pretend host, over real SSH, against its known truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from configs.problems import ConfigError
from configs.read import parse_sweep
from flows.installed import hold_against
from flows.question import pose
from infra.rehearsal import truth
from tasks.reporting import compare_sweep
from tests import sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.sweep import Sweep
    from flows.outcome import Outcome
    from tasks.record import TrialRecord
    from tests.sweeping import Ground

_EAGLE3 = "{kind: eagle3, drafter: data/eagle3/k25-tuned, num_steps: 3, topk: 1, draft_tokens: 4}"
_SWEEP = """
name: engines
question: Which engine, with or without EAGLE-3?
hosts: [box]
engine:
  kind: sglang
  model: shared/kimi-k2.5-int4
  flags: {{tp-size: 8, mem-fraction-static: 0.85, max-running-requests: 64, cuda-graph-max-bs: 64}}
engines:
  vllm:
    kind: vllm
    model: shared/kimi-k2.5-int4
    flags: {{tensor-parallel-size: 8, gpu-memory-utilization: 0.9, max-num-seqs: 64}}
patches: [kimi_k25_eagle3]
baseline: base
arms: {{{arms}}}
probes:
  load:
    kind: stream
    prompts: mixed
    concurrency: [2]
    requests_per_slot: 3
    min_requests: 4
    sampling: {{max_new_tokens: 64, ignore_eos: true}}
    template: {{kind: none}}
    warm_up: {{per_slot: 1, max_new_tokens: 4, max_windows: 0}}
blocks: {blocks}
patience: {{start_s: 30, silence_s: 20, stop_s: 1, gpu_free_s: 5}}
"""
_ARMS = {
    "base": "{}",
    "eagle": f"{{speculation: {_EAGLE3}}}",
    "v-base": "{engine: vllm}",
    "v-eagle": f"{{engine: vllm, speculation: {_EAGLE3}}}",
}


def asked(*arms: str, blocks: int = 1) -> Sweep:
    text = ", ".join(f"{name}: {_ARMS[name]}" for name in arms)
    sweep = parse_sweep(
        _SWEEP.format(arms=text, blocks=blocks).replace("baseline: base", f"baseline: {arms[0]}"),
        "engines.yaml",
    )
    return sweep.model_copy(update={"name": "-".join(["engines", *arms])})


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("engines"), time_scale=2.0) as made:
        yield made


@pytest.fixture(scope="module")
def mixed(ground: Ground) -> Outcome:
    return ground.run(asked("base", "eagle", "v-base", "v-eagle", blocks=2))


def of(outcome: Outcome, arm: str) -> list[TrialRecord]:
    found = [record for record in outcome.records if record.arm == arm]
    assert found
    assert all(record.status == "ok" for record in found), [
        (record.trial, record.failure, record.findings) for record in found
    ]
    return found


@pytest.mark.long
def test_every_arm_is_measured_on_its_engine(mixed: Outcome, ground: Ground):
    for arm in ("base", "eagle", "v-base", "v-eagle"):
        engine = "vllm 0.33.0" if arm.startswith("v-") else "sglang 0.5.9"
        for record in of(mixed, arm):
            assert record.must_match["engine"] == engine
            assert record.must_match["max-running-requests"] == "64"
    assert ground.empty()


@pytest.mark.long
def test_the_records_of_vllm_are_whole(mixed: Outcome):
    plain, drafted = of(mixed, "v-base")[0], of(mixed, "v-eagle")[0]
    assert plain.asked["max-num-seqs"] == plain.effective["max-num-seqs"] == "64"
    assert plain.effective["tensor-parallel-size"] == "8"
    assert drafted.effective["num-speculative-tokens"] == "3"
    assert {"start_s", "load_s", "draft_load_s", "capture_s"} <= set(drafted.start)
    assert drafted.environment["VLLM_SERVER_DEV_MODE"] == "1"
    assert drafted.command[1:4] == ("-m", "vllm.entrypoints.cli.main", "serve")
    assert drafted.patches == (), "a patch of SGLang is none of vLLM's business"
    (measured,) = drafted.measurements
    assert measured.completed == measured.requested == 6
    assert measured.cached_tokens == 0
    assert len(measured.output_shas) == 6


@pytest.mark.long
def test_acceptance_comes_from_differences_of_counters(mixed: Outcome):
    (ours,) = of(mixed, "eagle")[0].measurements
    (measured,) = of(mixed, "v-eagle")[0].measurements
    assert (ours.counts_from, measured.counts_from) == ("requests", "counters")
    assert measured.verify_steps is not None
    assert measured.accepted is not None
    assert (
        measured.completion_tokens == measured.completed + measured.verify_steps + measured.accepted
    )
    assert measured.proposed == 3 * measured.verify_steps
    assert measured.accept_length == pytest.approx(ours.accept_length, rel=0.02)
    assert measured.accept_at_k == pytest.approx(ours.accept_at_k, abs=0.03)


@pytest.mark.long
@pytest.mark.parametrize(
    ("arm", "engine", "drafter"),
    [("v-base", "vllm", None), ("v-eagle", "vllm", "k25-tuned"), ("base", "sglang", None)],
)
def test_the_speed_is_the_truth(mixed: Outcome, arm: str, engine: str, drafter: str | None):
    accept = truth.DRAFTERS[drafter] if drafter else ()
    told = truth.Arm(
        speculation=drafter is not None,
        accept_at=accept,
        num_steps=3 if drafter else 0,
        num_draft_tokens=4 if drafter else 1,
        engine=engine,
    )
    expected = truth.expected(told, 2, 64).user_tok_s
    for record in of(mixed, arm):
        (measured,) = record.measurements
        assert measured.user_tok_s == pytest.approx(expected, rel=0.05)


@pytest.mark.long
def test_the_verdicts_across_engines_are_right(mixed: Outcome, ground: Ground):
    records = [record for arm in _ARMS for record in of(mixed, arm)]
    found = compare_sweep(asked("base", "eagle", "v-base", "v-eagle", blocks=2), records)
    assert found.refusals == ()
    cells = {c.arm: c for c in found.cells if c.metric == "user_tok_s"}

    def true_ratio(arm: str) -> float:
        def speed(engine: str, *, drafts: bool) -> float:
            accept = truth.DRAFTERS["k25-tuned"] if drafts else ()
            of_arm = truth.Arm(
                speculation=drafts,
                accept_at=accept,
                num_steps=3 if drafts else 0,
                num_draft_tokens=4 if drafts else 1,
                engine=engine,
            )
            return truth.expected(of_arm, 2, 64).user_tok_s

        mine = speed("vllm" if arm.startswith("v-") else "sglang", drafts="eagle" in arm)
        return mine / speed("sglang", drafts=False)

    for arm in ("eagle", "v-base", "v-eagle"):
        assert cells[arm].verdict == "better"
        assert cells[arm].ratio == pytest.approx(true_ratio(arm), rel=0.05)
    report = (ground.latest(mixed.records[0].sweep).path / "report" / "report.md").read_text()
    assert "## Across engines" in report
    assert "gpu-memory-utilization are near, not the same" in report


def test_a_plan_is_held_against_both_engines(ground: Ground):
    said: list[str] = []
    wanted = asked("base", "eagle", "v-base", "v-eagle")
    hold_against(pose(wanted, str(ground.host_file())), "engines.yaml", said.append)
    assert [line.partition(" in ")[0] for line in said] == [
        "box: SGLang 0.5.9",
        "box: vLLM 0.33.0",
    ]
    flags = {**wanted.engines["vllm"].flags, "of-tomorrow": 1}
    newer = wanted.engines["vllm"].model_copy(update={"flags": flags})
    with pytest.raises(ConfigError, match=r"vLLM 0\.33\.0 has no --of-tomorrow"):
        hold_against(
            pose(wanted.model_copy(update={"engines": {"vllm": newer}}), str(ground.host_file())),
            "engines.yaml",
            said.append,
        )


def test_a_dead_engine_core_is_a_failure_with_its_cause(ground: Ground):
    ground.plant("draft_weights", "die")
    record = ground.trial(asked("v-eagle")).record
    assert record.failure is not None
    assert record.failure.failure_class == "missing_interface"
    assert "EAGLE3 interface" in record.failure.message
    assert ground.empty()


def test_memory_that_is_gone_is_named(ground: Ground):
    ground.plant("graph_capture", "oom")
    record = ground.trial(asked("v-base")).record
    assert record.failure is not None
    assert record.failure.failure_class == "gpu_oom", record.failure
    assert "lower --gpu-memory-utilization" in record.failure.remedy
    assert ground.empty()


@pytest.mark.long
def test_an_engine_that_dies_under_load_is_named_and_tried_again(ground: Ground):
    ground.plant("after_requests", "die", after_requests=2)
    outcome = ground.run(asked("v-base"), fresh=True)
    first = ground.tried(outcome, "b01-v-base", 1).record
    assert first.failure is not None
    assert first.failure.stage in {"warm_up", "probe"}
    assert first.failure.failure_class == "illegal_memory_access", first.failure
    (again,) = outcome.records
    assert (again.attempt, again.status) == (2, "ok"), "that may be a matter of the moment"
    assert ground.empty()
