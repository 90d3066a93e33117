"""Made-up weights and acceptance: what makes no sense, and what would hide that it is made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from configs.flags import flag_value
from configs.layers import engine_of, engine_place, engines_by_place, places, weights_of
from configs.probe import own_of
from configs.problems import Said
from configs.speculation import Ngram, Off, most_drafts
from configs.synthetic import DRAFT_LOAD_FORMAT, LOAD_FORMAT, PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from configs.host import Host
    from configs.sweep import Arm, Sweep

_SAID: Final = {
    LOAD_FORMAT: "engine.weights: dummy",
    DRAFT_LOAD_FORMAT: "arms.<name>.simulate.drafter: dummy, or engine.weights: dummy",
}


_NOT_VLLM: Final = (
    "random weights accept nothing, and vLLM is told no acceptance to pretend: real weights here, "
    "or SGLang's arms with weights: dummy"
)


def synthetic_problems(sweep: Sweep, host: Host | None = None) -> list[Said]:
    """Everything that is wrong with what a sweep makes up; empty where nothing is."""
    found = [*_hidden(sweep, host)]
    found += _questions(sweep)
    found += _mixed(sweep)
    for name, arm in sweep.arms.items():
        engine = engine_of(sweep, name)
        if engine.kind == "sglang":  # of vLLM's arms configs/vllm_rules.py speaks
            found += _arm(name, arm, dummy=weights_of(engine) == "dummy")
    return found


def synthetic_cautions(sweep: Sweep) -> Iterator[Said]:
    """What should be known of a sweep that makes something up."""
    made_up = [name for name, arm in sweep.arms.items() if arm.simulate is not None]
    dummy = [at for at, each in engines_by_place(sweep).items() if weights_of(each) == "dummy"]
    for where in dummy:
        yield Said(
            f"{where}.weights",
            "dummy: step times and speeds at a pretended acceptance, no claim about text or drafters",
        )
    if not made_up and not dummy:
        return
    for name, probe in own_of(sweep.probes).items():
        if not probe.sampling.ignore_eos:
            yield Said(
                f"probes.{name}.sampling.ignore_eos",
                "made-up text may end anywhere: set it to true, so that answers are of one length",
            )
    real = [
        name
        for name, arm in sweep.arms.items()
        if arm.simulate is None and not isinstance(arm.speculation, Off)
    ]
    if made_up and real:
        yield Said(
            "arms",
            f"{', '.join(made_up)} pretend their acceptance and are never compared with "
            f"{', '.join(real)}: they stand in the report's What if alone",
        )


def _hidden(sweep: Sweep, host: Host | None) -> Iterator[Said]:
    """The same by flags and variables: there it would be told from the real thing by no one."""
    for place in places(sweep):
        for flag, said in _SAID.items():
            if flag_value(place.flags, flag) != "dummy":
                continue
            where = f"{place.where}.flags.{flag}"
            if "sglang" in place.engines:
                yield Said(where, f"is said elsewhere: write {said}")
            else:
                yield Said(where, _NOT_VLLM)
        for name in place.env:
            if name.startswith(PREFIX):
                yield Said(
                    f"{place.where}.env.{name}",
                    "is said elsewhere: write arms.<name>.simulate: {accept_length: ...}",
                )
    for name in host.env if host is not None else ():
        if name.startswith(PREFIX):
            yield Said(
                "hosts",
                f"the host file's env sets {name}, so that every arm would pretend: take it out",
            )


def _questions(sweep: Sweep) -> Iterator[Said]:
    """What if needs two pretended accept lengths of one shape, and a plain arm beside them."""
    if not sweep.what_if:
        return
    shapes: dict[str, set[float]] = {}
    for arm in sweep.arms.values():
        if arm.simulate is not None:
            key = f"{arm.speculation.model_dump_json()} {sorted(arm.flags.items())}"
            shapes.setdefault(key, set()).add(arm.simulate.accept_length)
    if not any(len(lengths) > 1 for lengths in shapes.values()):
        yield Said(
            "what_if",
            "needs two arms or more that differ in nothing but simulate.accept_length: 1 and the "
            "number of draft steps + 1 are enough",
        )
    if not any(
        isinstance(arm.speculation, Off) and engine_of(sweep, name).kind == "sglang"
        for name, arm in sweep.arms.items()
    ):
        yield Said("what_if", "needs an arm without speculation to compare with: add one")


def _mixed(sweep: Sweep) -> Iterator[Said]:
    """Engines with real and with random weights in one sweep."""
    wanted = weights_of(engine_of(sweep, sweep.baseline))
    used = {engine_place(sweep, name): engine_of(sweep, name) for name in sweep.arms}
    for where, engine in used.items():
        if weights_of(engine) != wanted:
            yield Said(
                where,
                f"has not the {wanted} weights of {sweep.baseline}'s engine: the arms would not be "
                "comparable; give all engines real weights, or run this one apart",
            )


def _arm(name: str, arm: Arm, *, dummy: bool) -> Iterator[Said]:
    where = f"arms.{name}.simulate"
    if arm.simulate is None:
        if dummy and not isinstance(arm.speculation, Off):
            yield Said(
                where,
                "is missing: random weights accept nothing, so say what to pretend: "
                "simulate: {accept_length: 2.5}",
            )
        return
    if isinstance(arm.speculation, Off | Ngram):
        yield Said(
            where,
            f"needs a drafter that is a model, not kind {arm.speculation.kind}: SGLang pretends "
            "acceptance there alone",
        )
        return
    most = most_drafts(arm.speculation)
    if most is not None and arm.simulate.accept_length > most + 1:
        yield Said(
            f"{where}.accept_length",
            f"is {arm.simulate.accept_length:g}, a verify step of this arm gives at most "
            f"{most + 1} tokens: lower it, or draft more",
        )
