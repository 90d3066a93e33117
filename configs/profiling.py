"""A probe of kind profile: some decode steps, recorded with the engine's own profiler."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from configs.names import Count, Seconds, Text
from configs.problems import WrongKeyError
from configs.request import Sampling, Template
from configs.values import Value

MOST_STEPS: Final = 200
"""A recorded step of a large target is a megabyte of trace and more; twenty say enough."""


class Profile(Value):
    """Where the time of a decode step goes: shares of GPU time by kind of kernel.

    Recording slows a server down, so a profile runs after all probes that measure speed, wherever
    it stands in the file, and enters no ratio.
    """

    kind: Literal["profile"] = "profile"
    prompts: Text
    """Name of a set in configs/prompts, or a path of your own JSONL."""
    kinds: tuple[Text, ...] = ()
    """Only these kinds of text; none: all."""
    concurrency: Annotated[tuple[Count, ...], Field(min_length=1)]
    """Requests in flight while steps are recorded; one recording each, in one boot."""
    decode_steps: Annotated[Count, Field(le=MOST_STEPS)] = 20
    """Decode or verify steps to record."""
    requests_per_slot: Count = 16
    """Requests per concurrent slot at most. The load ends as soon as the steps are recorded; it
    must last until then."""
    sampling: Sampling = Sampling(max_new_tokens=512, ignore_eos=True)
    """Long answers, so that few prefills fall between the steps."""
    template: Template = Template()
    """How a prompt becomes what the model was trained on."""
    host_events: bool = True
    """Record what the host does too (calls and ranges): it is what tells the drafter's eager
    kernels from the target's. Off: GPU events alone, for engines that stumble over it."""
    keep_trace: bool = False
    """Leave the engine's trace files on the host, to be looked at; they may be hundreds of MB."""
    request_timeout_s: Seconds = 600.0
    """For one request."""
    timeout_s: Seconds = 900.0
    """For one recording, from the first request until its trace has been read."""

    @model_validator(mode="after")
    def _ladder_without_repeats(self) -> Self:
        twice = sorted({c for c in self.concurrency if self.concurrency.count(c) > 1})
        if twice:
            shown = ", ".join(map(str, twice))
            raise WrongKeyError("concurrency", f"{shown} stands twice: name each level once")
        return self

    @model_validator(mode="after")
    def _text_only(self) -> Self:
        if self.prompts == "random":
            raise WrongKeyError(
                "prompts", "a drafter does other work on noise: name a set of prompts"
            )
        return self

    def requests(self, concurrency: int) -> int:
        """How many requests there are at most at this concurrency."""
        return concurrency * self.requests_per_slot
