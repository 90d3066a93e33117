"""What the agent on a host answers, as values; and what it means that it does not."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from infra.errors import AgentBroken, AgentRefusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.shell import Output

_REFUSED = 10
_FULL = ("no space left on device", "disk quota exceeded")


class Hello(NamedTuple):
    """Who answers."""

    version: str
    python: str
    boot_id: str
    uid: int
    user: str
    home: str


class Poll(NamedTuple):
    """What one `wait` brought."""

    state: dict[str, Any] | None
    engine_alive: bool
    supervisor_alive: bool
    log: bytes
    offset: int
    log_size: int
    job: dict[str, Any] | None
    seen: str | None
    monotonic: float
    """The host's clock as it answered, seconds since its boot."""

    @classmethod
    def of(cls, answer: Mapping[str, Any], asked: int | None) -> Poll:
        """From the agent's answer; the offset that was asked for is None where no log was."""
        return cls(
            state=answer["state"],
            engine_alive=answer["engine_alive"],
            supervisor_alive=answer["supervisor_alive"],
            log=base64.b64decode(answer["log"]),
            offset=answer["offset"] if asked is not None else 0,
            log_size=answer["log_size"],
            job=answer["job"],
            seen=answer["seen"],
            monotonic=answer["monotonic"],
        )


def read_answer(command: str, output: Output) -> dict[str, Any]:
    """The agent's answer, or its refusal.

    Raises:
        AgentRefusal: Exit code 10: a foreseen refusal.
        AgentBroken: Anything that is not one JSON object.
    """
    try:
        answer = json.loads(output.out.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        shown = (output.err or output.out).strip().splitlines()[-3:]
        raise AgentBroken(
            f"agent {command}: exit {output.code}: {' | '.join(shown) or 'no output'}"
        ) from error
    if not isinstance(answer, dict):
        raise AgentBroken(f"agent {command}: not an object: {output.out[:200]}")
    if output.code == _REFUSED or answer.get("ok") is False:
        raise AgentRefusal(str(answer.get("error")), str(answer.get("message", "")), answer)
    return answer


def text_of(output: Output) -> str:
    """What a plain command of the host said.

    Raises:
        AgentRefusal: ``disk_full``.
        AgentBroken: Any other exit code than 0.
    """
    if output.code != 0 and says_full(output.err):
        raise AgentRefusal("disk_full", output.err.strip()[:200], {})
    if output.code != 0:
        raise AgentBroken(f"the host's shell: exit {output.code}: {output.err.strip()[:200]}")
    return output.out


def says_full(text: str) -> bool:
    """Whether a host's words (in C's language) mean a full disk."""
    return any(words in text.lower() for words in _FULL)
