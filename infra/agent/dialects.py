"""The parser for each path that ``drive`` can put load on."""

from __future__ import annotations

from collections.abc import Callable

from infra.agent.completions import CompletionsStream
from infra.agent.streams import GenerateStream, Stream

STREAMS: dict[str, Callable[[], Stream]] = {
    "/generate": GenerateStream,
    "/v1/completions": CompletionsStream,
}
