"""Every way of speculating is measured as it truly is on the pretend host."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from configs.speculation import Eagle, Eagle3, Nextn, Ngram, Speculation, Standalone
from infra.rehearsal import truth, weights
from infra.rehearsal.forecast import forecast
from tests import rehearsing, sweeping

if TYPE_CHECKING:
    from tasks.record import TrialRecord
    from tests.sweeping import Ground

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.long,
    pytest.mark.timeout(420),
]  # seven boots in real time

TOKENS, USERS, REQUESTS = 128, 2, 4
HEAD = (0.78, 0.62, 0.46)  # k25-tuned
OTHERS = {
    "eagle": ("LlamaForCausalLMEagle", (0.6, 0.3, 0.15)),
    "nextn": ("DeepseekV3ForCausalLMNextN", (0.85, 0.5, 0.2)),
    "small": ("LlamaForCausalLM", (0.7, 0.5, 0.35)),
}


@dataclass(frozen=True)
class Way:
    """An arm, and what it really does."""

    speculation: Speculation
    arm: truth.Arm


def way(speculation: Any, accept_at: tuple[float, ...]) -> Way:
    steps, topk, tokens = speculation.num_steps, speculation.topk, speculation.draft_tokens
    shares = truth.chain(accept_at, steps, topk, tokens)
    return Way(speculation, truth.Arm(True, shares, steps, topk, tokens))


def chain(steps: int) -> dict[str, int]:
    return {"num_steps": steps, "topk": 1, "draft_tokens": steps + 1}


def folder(name: str) -> str:
    return f"data/eagle3/{name}"


WAYS = {
    "chain5": way(Eagle3(drafter=folder("k25-tuned"), **chain(5)), HEAD),
    "tree": way(Eagle3(drafter=folder("k25-tuned"), num_steps=3, topk=4, draft_tokens=12), HEAD),
    "shallow": way(Eagle3(drafter=folder("k25-tuned"), num_steps=3, topk=4, draft_tokens=3), HEAD),
    "eagle": way(Eagle(drafter=folder("eagle"), **chain(3)), OTHERS["eagle"][1]),
    "nextn": way(Nextn(drafter=folder("nextn"), **chain(1)), OTHERS["nextn"][1]),
    "small": way(Standalone(drafter=folder("small"), **chain(4)), OTHERS["small"][1]),
    "ngram": Way(
        Ngram(draft_tokens=6, max_breadth=4, match="prob"),
        truth.Arm(True, truth.chain(truth.NGRAM, 5, 1, 6), 0, 1, 6),
    ),
}


def more_drafters(home: Path) -> None:
    """Drafters of other kinds beside the pretend host's own."""
    for name, (architecture, accept_at) in OTHERS.items():
        config = weights.drafter_config([1, 29, 57]) | {"architectures": [architecture]}
        place = home / folder(name)
        weights.write_model(place, config, weights.drafter_tensors())
        (place / "rehearsal.json").write_text(json.dumps({"accept_at": accept_at}))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrialRecord]:
    with sweeping.ground(tmp_path_factory.mktemp("ways"), time_scale=2.0) as ground:
        rehearsing.patch(ground.folder)
        more_drafters(Path(ground.ready.home))
        return {record.arm: record for record in measure(ground)}


def measure(ground: Ground) -> tuple[TrialRecord, ...]:
    asked = sweeping.sweep("ways", arms="tuned", patches="", tokens=TOKENS, per_slot=2)
    flags = {**asked.engine.flags, "page-size": 1}
    template = asked.arms["tuned"]
    arms = {
        name: template.model_copy(update={"speculation": one.speculation, "env": {}})
        for name, one in WAYS.items()
    }
    changed = {
        "arms": arms,
        "baseline": "chain5",
        "engine": asked.engine.model_copy(update={"flags": flags}),
    }
    return ground.run(asked.model_copy(update=changed)).records


@pytest.mark.parametrize("name", WAYS)
def test_a_way_is_measured_as_it_is(records: dict[str, TrialRecord], name: str) -> None:
    record, one = records[name], WAYS[name]
    assert record.status in sweeping.MEASURED, (record.failure, record.findings)
    assert {finding.name for finding in record.findings} <= {"client_was_the_bottleneck"}
    (measured,) = record.measurements
    wanted = forecast(one.arm, USERS, TOKENS, REQUESTS)
    assert measured.counts_from == "requests"
    assert measured.accept_length == pytest.approx(wanted.accept_length, rel=0.02)
    assert measured.user_tok_s == pytest.approx(wanted.user_tok_s, rel=0.02)
    assert measured.step_s == pytest.approx(wanted.accept_length / wanted.user_tok_s, rel=0.02)
    assert measured.accept_at_k is not None
    # So few requests begin anywhere in the sequence of acceptance.
    assert measured.accept_at_k[0] == pytest.approx(wanted.accept_at[0], rel=0.06)
    assert len(measured.accept_at_k) <= len(one.arm.accept_at)
    assert measured.verify_steps is not None
    assert measured.proposed == measured.verify_steps * (one.arm.num_draft_tokens - 1)


def test_each_is_started_by_its_own_name(records: dict[str, TrialRecord]) -> None:
    started = {name: record.asked["speculative-algorithm"] for name, record in records.items()}
    assert started == {
        "chain5": "EAGLE3",
        "tree": "EAGLE3",
        "shallow": "EAGLE3",
        "eagle": "EAGLE",
        "nextn": "NEXTN",
        "small": "STANDALONE",
        "ngram": "NGRAM",
    }
    asked = records["ngram"].asked
    assert asked["speculative-ngram-max-bfs-breadth"] == "4"
    assert records["ngram"].effective["speculative-ngram-match-type"] == "PROB"
