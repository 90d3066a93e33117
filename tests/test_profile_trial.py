"""A profile over real SSH: the pretend engine's shares come back as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from configs.probe import Profile
from configs.request import Sampling, Template
from infra.rehearsal import kernels, truth
from tasks.kernel_table import CATEGORIES
from tests import sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.sweep import Sweep
    from tasks.profile_record import StepProfile
    from tests.sweeping import Ground

INSIDE = Profile(
    prompts="mixed",
    concurrency=(2,),
    decode_steps=12,
    requests_per_slot=2,
    sampling=Sampling(max_new_tokens=600, ignore_eos=True),
    template=Template(kind="none"),
)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with sweeping.ground(tmp_path_factory.mktemp("profiles"), noise_cv=0.0) as made:
        yield made


def asked(name: str, arm: str, **changed: object) -> Sweep:
    sweep = sweeping.sweep(name, arms=arm)
    # Before the probe that measures: it runs after it all the same.
    probes = {"inside": INSIDE.model_copy(update=changed), **sweep.probes}
    return sweep.model_copy(update={"probes": probes})


def agrees(seen: StepProfile, arm: truth.Arm) -> None:
    """Every share within two percent of the whole, the time of a step within two percent."""
    expected = kernels.shares(arm, seen.concurrency)
    assert seen.shares is not None
    assert seen.idle is not None
    assert seen.idle == pytest.approx(expected["idle"], abs=0.02)
    for category in CATEGORIES:
        share = expected.get(category, 0.0)
        assert seen.shares.of(category) == pytest.approx(share, abs=0.02), category
    assert seen.shares.total + seen.idle == pytest.approx(1.0, abs=1e-9)
    assert seen.step_us == pytest.approx(1e6 * truth.step_s(arm, seen.concurrency), rel=0.02)


@pytest.mark.parametrize("host_events", [True, False])
def test_shares_of_a_speculating_server_are_its_truth(ground: Ground, host_events: bool) -> None:
    tried = ground.trial(asked(f"tuned-{host_events}".lower(), "tuned", host_events=host_events))
    (seen,) = tried.record.profiles
    assert seen.trouble is None
    arm = truth.Arm(
        speculation=True, accept_at=truth.DRAFTERS["k25-tuned"], num_steps=3, num_draft_tokens=4
    )
    agrees(seen, arm)
    assert seen.steps == 12
    assert seen.drafting == pytest.approx(kernels.drafter_share(arm, 2), abs=0.02)
    assert (seen.ranks, seen.ranks_asked, seen.whole, seen.told_by) == (8, 8, True, "graphs")
    assert tried.record.status in sweeping.MEASURED
    assert not [f for f in tried.record.findings if f.name.startswith("profile_")]
    assert tried.stages.index("probe:load") < tried.stages.index("probe:inside")
    assert [m.probe for m in tried.record.measurements] == ["load"]
    assert (tried.folder / "profiles" / "profile-inside-c2.jsonl.gz").stat().st_size < 100_000
    jobs = ground.root / "trials"
    assert not list(jobs.rglob("*.trace.json.gz")), "the engine's traces stay on no host"


def test_the_protocol_s_saving_shows_in_the_all_reduce(ground: Ground) -> None:
    sweep = asked("ll", "base")
    arms = {"base": sweep.arms["base"].model_copy(update={"env": {"NCCL_PROTO": "LL"}})}
    (seen,) = ground.trial(sweep.model_copy(update={"arms": arms})).record.profiles
    agrees(seen, truth.Arm(nccl_proto="LL"))
    assert seen.shares is not None
    assert seen.shares.all_reduce < truth.ALL_REDUCE_SHARE - 0.02
    assert (seen.drafter, seen.drafter_asked) == (None, False)


@pytest.mark.long
@pytest.mark.parametrize("what", ["die", "no_tokens"])
def test_an_engine_that_ends_in_a_profile_costs_the_trial_nothing(
    ground: Ground, what: str
) -> None:
    def at(stage: str) -> None:
        if stage == "probe:inside":
            ground.plant("decode", what)

    sweep = asked(f"ends-{what}".replace("_", "-"), "tuned", timeout_s=8.0)
    record = ground.trial(sweep, at=at).record
    assert record.status in sweeping.MEASURED, record.failure
    assert [m.probe for m in record.measurements] == ["load"]
    (seen,) = record.profiles
    assert seen.trouble
    (finding,) = (f for f in record.findings if f.name.startswith("profile_"))
    assert (finding.name, finding.where) == ("profile_failed", "inside c2")
    assert finding.tolerated is not None
    assert ground.empty()
