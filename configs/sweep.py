"""A sweep: the question, as one value; the checks that need the whole of it are in rules.py."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from configs.deadline import Clock, Zone
from configs.flags import Flags
from configs.names import Count, EnvName, Name, Names, Number, Seconds, Text, Whole
from configs.nodes import Entry
from configs.probe import Probe
from configs.problems import WrongKeyError
from configs.screening import Screening
from configs.secret_names import SecretName
from configs.short_levels import long_form
from configs.speculation import Off, Speculation
from configs.synthetic import Simulate, Weights
from configs.values import Value
from configs.vllm import Vllm


class Sglang(Value):
    """The engine and what all arms share."""

    without_kind: ClassVar[bool] = True
    """An engine without a kind is this one: files say none from when there was no other."""
    kind: Literal["sglang"] = "sglang"
    model: Text
    """Folder of the target on the host (--model-path)."""
    flags: Flags = {}
    """Any flag by its full name without dashes: {tp-size: 8, trust-remote-code: true}."""
    env: dict[EnvName, str] = {}
    """Environment of every arm; secrets are refused here."""
    env_from: tuple[SecretName, ...] = ()
    """Names of secrets that are taken from the controller's environment."""
    weights: Weights = "real"
    """``dummy``: random weights in every arm (--load-format dummy), of target and drafters."""


Engine = Sglang | Vllm


class Level(Value):
    """One alternative of a factor: what it adds to the engine's flags and environment."""

    flags: Flags = {}
    """They win over the engine's and the arm's."""
    env: dict[EnvName, str] = {}
    """Variable -> value; may stand without `env:` where a level adds nothing else."""

    @model_validator(mode="before")
    @classmethod
    def _either_form(cls, given: Any) -> Any:
        """``{NCCL_PROTO: LL}`` says the same as ``{env: {NCCL_PROTO: LL}}``."""
        return long_form(given)


class Arm(Value):
    """One server setting under test."""

    engine: Name | None = None
    """Name of one of the sweep's ``engines``; none: its ``engine``."""
    speculation: Speculation = Off()
    """How tokens are guessed ahead; `kind: off` where nothing is said."""
    flags: Flags = {}
    """Flags of this arm alone; they win over the engine's."""
    env: dict[EnvName, str] = {}
    """Environment of this arm alone; it wins over the engine's."""
    simulate: Simulate | None = None
    """Acceptance that the engine pretends; never compared with a real one."""
    note: str = ""
    """For readers of the file; changes nothing."""
    replicate_of: Name | None = None
    """Another arm, of which this one is an exact copy: what differs between the two is noise
    (A/A)."""


class Until(Value):
    """When to stop before the last block; each look is paid for (tasks/looks)."""

    half_width: Annotated[Number, Field(gt=0, lt=0.5)] | None = 0.02
    """Enough is known when the interval of every ratio of the leading figure to the baseline
    reaches no further than this either way (as a share of the ratio); null: nobody looks, and
    nothing is paid for looking."""
    min_blocks: Annotated[Count, Field(ge=2)] = 3
    """Before the first look."""
    max_blocks: Count = 8
    """The last block, whatever is known then."""
    hours: Annotated[Number, Field(gt=0)] | None = None
    """No trial is started later than this after the start of the command."""
    time: Clock | None = None
    """When the hosts must be free, such as "06:30": the next time that it is so late. A trial that
    would not be over by then, as far as earlier ones tell, is not begun."""
    zone: Zone | None = None
    """The time zone of ``time``, such as Europe/Berlin; none: this machine's."""

    @model_validator(mode="after")
    def _room_to_look(self) -> Self:
        if self.max_blocks < self.min_blocks:
            raise WrongKeyError("max_blocks", f"is below min_blocks ({self.min_blocks}): raise it")
        if self.zone is not None and self.time is None:
            raise WrongKeyError("zone", 'is that of time, which is not given: add time: "06:30"')
        return self

    @property
    def looks(self) -> int:
        """How many looks there may be: after each block from the first one that counts, or one."""
        return self.max_blocks - self.min_blocks + 1 if self.half_width is not None else 1


class Patience(Value):
    """How long each part may take before a trial is given up."""

    start_s: Seconds = 3600.0
    """From launch to ready: a 500 GB model from a slow disk takes most of an hour."""
    silence_s: Seconds = 1200.0
    """Without any progress in the start log (kernel compilation is silent for long), or without
    any token in a probe."""
    stop_s: Seconds = 20.0
    """From SIGTERM to SIGKILL."""
    gpu_free_s: Seconds = 120.0
    """For GPU memory and port to come back after the engine is gone."""
    claim_s: Annotated[Number, Field(ge=0)] = 0.0
    """How long to wait for a host that another sweep holds; 0: refuse at once."""


class Sweep(Value):
    """The question. It is one YAML file; everything else follows from it."""

    name: Name
    """The file's name without its ending; also of the run folder and the MLflow experiment."""
    question: Text
    """In one sentence, for the report."""
    hosts: Annotated[tuple[Entry, ...], Field(min_length=1)]
    """Names of files in configs/hosts. Several share the blocks, all at work at once; a list of
    names among them is one place of several nodes, which serve one model together:
    [[node0, node1]]."""
    engine: Engine
    """The engine of every arm that names no other."""
    engines: dict[Name, Engine] = {}
    """Further engines by name, for arms that name one: {vllm: {kind: vllm, model: /m}}."""
    baseline: Name
    """The arm that all others are compared with."""
    arms: Annotated[dict[Name, Arm], Field(min_length=1)]
    """Arm -> its setting; one of them is the baseline."""
    canary: Name | None = None
    """An arm that is the same every night: what becomes worse of it over the nights goes into the
    morning's message (`eagle3-sweep history`)."""
    factors: dict[Name, dict[Name, Level]] = {}
    """Factor -> level -> what it adds; crossed with the arms. A factor's first level is its
    reference."""
    exclude: tuple[dict[Name, Names], ...] = ()
    """Cells that are not run, each by some of its levels and perhaps its arm, such as
    {arm: base, nccl: ll}; what is not named may be anything."""
    combinations: tuple[dict[Name, Names], ...] = ()
    """In place of the crossing: the cells that are run. A factor that is not named is at its
    first level; without an arm all arms are meant."""
    screen: Screening | None = None
    """Try a factor's levels in seconds first, and leave out those that cannot win."""
    probes: Annotated[dict[Name, Probe], Field(min_length=1)]
    """Probe -> its traffic; each trial runs all of them, in this order, profiles last."""
    patches: tuple[Name, ...] = ()
    """Names of files in configs/patches, applied before launch."""
    keep_patch: bool = False
    """Leave the patched file in place after the trial."""
    blocks: Count = 8
    """Repeats: one block is one pass over all arms, in a shuffled order. Eight find a change of
    5 % four times in five when a boot varies by 2 % (docs/evidence/calibration.md)."""
    until: Until | None = None
    """Stop before the last block when enough is known; it sets the number of blocks too."""
    seed: Annotated[Whole, Field(ge=0)] = 1
    """Of the order of trials and prompts."""
    same_margin: Annotated[Number, Field(gt=0, lt=0.5)] = 0.02
    """Within this ratio either way two speeds are the same."""
    patience: Patience = Patience()
    """How long each part of a trial may take."""
    what_if: dict[Name, Annotated[Number, Field(ge=1)]] = {}
    """Drafter -> accept length, as printed on a model card: what speed it would give here. Needs
    arms that simulate at least two accept lengths."""
    tolerate: dict[Name, Text] = {}
    """Finding -> why it does not make a trial suspect here. It stays in the record and the
    report; use it for what is known and the same in all arms."""

    @model_validator(mode="after")
    def _short_forms(self) -> Self:
        """A copy takes everything from its arm; ``until`` says how many blocks there may be."""
        for name, arm in self.arms.items():
            if arm.engine is not None and arm.engine not in self.engines:
                known = ", ".join(self.engines) or "none is described under engines"
                raise WrongKeyError(
                    f"arms.{name}.engine", f"no engine is called {arm.engine!r}: {known}"
                )
        if self.canary is not None and self.canary not in self.arms:
            known = ", ".join(self.arms)
            raise WrongKeyError("canary", f"no arm is called {self.canary!r}: name one of {known}")
        whole = {name: _copied(name, arm, self.arms) for name, arm in self.arms.items()}
        blocks = self.blocks
        if self.until is not None:
            if "blocks" not in self.model_fields_set:
                blocks = self.until.max_blocks
            elif blocks != self.until.max_blocks:
                raise WrongKeyError(
                    "blocks", f"until.max_blocks says {self.until.max_blocks}: leave blocks out"
                )
        # While it is being made a value may still be completed; afterwards it is frozen.
        object.__setattr__(self, "arms", whole)
        object.__setattr__(self, "blocks", blocks)
        return self


def _copied(name: str, arm: Arm, arms: dict[str, Arm]) -> Arm:
    """An arm with the settings of the one that it replicates."""
    origin = arm.replicate_of
    if origin is None:
        return arm
    key = f"arms.{name}.replicate_of"
    if origin == name or origin not in arms:
        others = ", ".join(other for other in arms if other != name)
        raise WrongKeyError(key, f"no other arm is called {origin!r}: name one of {others}")
    of = arms[origin]
    if of.replicate_of is not None:
        raise WrongKeyError(key, f"{origin} is a copy itself: name {of.replicate_of}")
    for field in ("engine", "speculation", "flags", "env", "simulate"):
        if field in arm.model_fields_set and getattr(arm, field) != getattr(of, field):
            raise WrongKeyError(
                f"arms.{name}.{field}", f"a copy of {origin} has nothing of its own: leave it out"
            )
    return of.model_copy(update={"replicate_of": origin, "note": arm.note})
