"""Probes: traffic with a description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, Self, assert_never

from pydantic import Field, model_validator

from configs.bench_serving import BenchServing
from configs.names import Count, Number, Seconds, Text, Whole
from configs.problems import WrongKeyError
from configs.profiling import Profile
from configs.request import Sampling, Template
from configs.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "RANDOM",
    "BenchServing",
    "Own",
    "Probe",
    "Profile",
    "RandomTokens",
    "Sampling",
    "Stream",
    "Template",
    "WarmUp",
    "clients_of",
    "highest",
    "own_of",
    "profiles_of",
    "rungs_of",
    "streams_of",
]


_LEAST_IN_WINDOW: Final = 8
RANDOM: Final = "random"
"""What ``prompts`` says for random tokens; no set may be called so."""


class RandomTokens(Value):
    """Prompts of random token ids: the shape of traffic, for throughput only.

    Acceptance on noise says nothing about acceptance on text, in either direction (a two-token
    loop gave 3.93 tokens per step where chat gave 1.94: tokenspeed#1305), so none is claimed.
    """

    tokens: Count
    """Longest prompt (tokens); without range_ratio all have this length."""
    range_ratio: Annotated[Number, Field(ge=0, le=1)] = 1.0
    """Shortest prompt / longest; lengths are drawn evenly between (as in SGLang's benchmark)."""
    ids_below: Annotated[Count, Field(ge=1024)] = 20_000
    """Ids are drawn from 256 up to this: past the control tokens that many vocabularies begin
    with, and inside the vocabulary of every target (Llama 2 has 32,000, Kimi-K2.5 163,840)."""

    @property
    def shortest(self) -> int:
        """Tokens of the shortest prompt that may be drawn."""
        return max(1, int(self.range_ratio * self.tokens))


class WarmUp(Value):
    """Traffic before a probe, kept apart from it."""

    per_slot: Count = 2
    """Requests per concurrent slot, whatever comes of them."""
    max_new_tokens: Count = 32
    """Tokens of an answer."""
    tolerance: Annotated[Number, Field(gt=0, lt=1)] = 0.1
    """After the fixed part, short windows of traffic are driven until two in succession differ by
    less than this, in tokens/s and in accept length. A window has one request per slot, eight at
    least; of one user that is a few hundred tokens, whose chance alone makes several percent.
    Further windows are longer while they last less than three seconds."""
    max_windows: Annotated[Whole, Field(ge=0)] = 6
    """At most so many windows, in pairs; 0: the fixed part alone, and no look at stability."""
    max_s: Seconds = 120.0
    """No further pair is begun after so long (s)."""

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if self.max_windows % 2:
            raise WrongKeyError(
                "max_windows", f"{self.max_windows} is odd: windows are compared in pairs"
            )
        return self

    def window(self, concurrency: int) -> int:
        """Requests of one window."""
        return max(concurrency, _LEAST_IN_WINDOW)


class Stream(Value):
    """A fixed number of requests at fixed concurrency through the engine's streaming endpoint."""

    kind: Literal["stream"] = "stream"
    prompts: Text
    """Name of a set in configs/prompts, a path of your own JSONL, or ``random``."""
    random: RandomTokens | None = None
    """With ``prompts: random`` only: how long, e.g. {tokens: 512}. Sent as ids, without a chat
    template; gives throughput and claims no acceptance."""
    kinds: tuple[Text, ...] = ()
    """Only these kinds of text; none: all."""
    concurrency: Annotated[tuple[Count, ...], Field(min_length=1)]
    """The ladder: requests in flight, one measurement each, in one boot."""
    context_tokens: tuple[Annotated[Whole, Field(ge=0)], ...] = ()
    """A second ladder, in the same boot: about so many tokens of background text before each
    question. Every length is measured at every concurrency, under a name of its own
    (load-ctx2048; 0 is the probe's own name); none: the prompts as they are."""
    requests_per_slot: Count = 10
    """Requests per concurrent slot; fewer than 10 leave little steady state (pitfalls 15)."""
    min_requests: Count = 8
    """At least so many requests at every concurrency."""
    sampling: Sampling = Sampling()
    """How tokens are drawn, and how many."""
    template: Template = Template()
    """How a prompt becomes what the model was trained on."""
    warm_up: WarmUp = WarmUp()
    """Traffic before each measurement that is not counted."""
    flush: bool = True
    """Empty the prefix cache before every measurement (cold prompts)."""
    request_timeout_s: Seconds = 600.0
    """For one request."""
    timeout_s: Seconds = 3600.0
    """For one measurement (one concurrency)."""

    @model_validator(mode="after")
    def _ladder_without_repeats(self) -> Self:
        for key, levels in (
            ("concurrency", self.concurrency),
            ("context_tokens", self.context_tokens),
        ):
            repeated = sorted({level for level in levels if levels.count(level) > 1})
            if repeated:
                shown = ", ".join(map(str, repeated))
                raise WrongKeyError(key, f"{shown} stands twice: name each level once")
        return self

    @model_validator(mode="after")
    def _random_or_text(self) -> Self:
        if self.prompts == RANDOM and self.random is None:
            raise WrongKeyError("random", "missing: say how long, such as {tokens: 512}")
        if self.prompts != RANDOM and self.random is not None:
            raise WrongKeyError(
                "random", f"prompts is {self.prompts}: leave random out, or write prompts: random"
            )
        if self.random is not None and self.kinds:
            raise WrongKeyError("kinds", "random tokens are of no kind: leave it out")
        if self.random is not None and self.context_tokens:
            raise WrongKeyError(
                "context_tokens", "random tokens take no background: make random.tokens that long"
            )
        return self

    def requests(self, concurrency: int) -> int:
        """How many requests are sent at this concurrency."""
        return max(self.min_requests, concurrency * self.requests_per_slot)

    @property
    def prompt_tokens(self) -> int:
        """Tokens that every prompt has at least, as far as the probe itself says."""
        return self.random.tokens if self.random else max(self.context_tokens, default=0)

    def rungs(self, name: str) -> dict[str, Stream]:
        """The probe once for each prompt length, by the name that its measurements bear."""
        if not self.context_tokens:
            return {name: self}
        return {
            f"{name}-ctx{tokens}" if tokens else name: self.model_copy(
                update={"context_tokens": (tokens,)}
            )
            for tokens in self.context_tokens
        }


Probe = Stream | Profile | BenchServing
Own = Stream | Profile
"""A probe with prompts of its own."""


def streams_of(probes: Mapping[str, Probe]) -> dict[str, Stream]:
    """The probes that measure speed, in their order."""
    return _apart(probes).streams


def profiles_of(probes: Mapping[str, Probe]) -> dict[str, Profile]:
    """The probes that look where the time goes; they give no figure of speed, and run last."""
    return _apart(probes).profiles


def clients_of(probes: Mapping[str, Probe]) -> dict[str, BenchServing]:
    """The probes that have the engine's own client repeat another one; they run after all streams."""
    return _apart(probes).clients


def own_of(probes: Mapping[str, Probe]) -> dict[str, Own]:
    """The probes with prompts of their own."""
    return {**streams_of(probes), **profiles_of(probes)}


def highest(probes: Mapping[str, Probe]) -> int:
    """The most requests that any probe keeps in flight."""
    return max(level for probe in probes.values() for level in probe.concurrency)


class _Apart(NamedTuple):
    """Probes by kind."""

    streams: dict[str, Stream]
    profiles: dict[str, Profile]
    clients: dict[str, BenchServing]


def _apart(probes: Mapping[str, Probe]) -> _Apart:
    found = _Apart({}, {}, {})
    for name, probe in probes.items():
        match probe:
            case Stream():
                found.streams[name] = probe
            case Profile():
                found.profiles[name] = probe
            case BenchServing():
                found.clients[name] = probe
            case _:
                assert_never(probe)
    return found


def rungs_of(probes: Mapping[str, Probe]) -> dict[str, Stream]:
    """All that is measured in one boot, in order: every stream at each of its prompt lengths."""
    return {
        rung: probe
        for name, whole in streams_of(probes).items()
        for rung, probe in whole.rungs(name).items()
    }
