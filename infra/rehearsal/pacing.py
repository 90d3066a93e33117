"""Start the endpoint that keeps time, set its pace, and read what was true of each request."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from infra.rehearsal import tree
from infra.rehearsal.hosting import end

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from infra.rehearsal.paced import Pace

_START_S = 30.0
_LOOK_S = 0.02
_ANSWER_S = 60.0


@dataclass(frozen=True)
class Truth:
    """What the endpoint says of the requests since its pace was set, by its own clock.

    Attributes:
        requests: whole answers.
        broken: answers whose client went away.
        tokens: written in all of them.
        began: when the first request arrived, seconds of ``time.monotonic``.
        ended: when the last token was written.
        output_tok_s: tokens over that time.
        ttft_s: mean over requests, from arrival to the first write.
        tpot_s: mean over requests, (last write - first write) / (tokens - tokens of the first).
        tpot_by_token_s: the same, each request weighted by its tokens after the first write.
        late_p99_s: how late the endpoint's own decode steps began.
        cpu_share: of one core, that the endpoint used meanwhile; from the first arrival on.
    """

    requests: int
    broken: int
    tokens: int
    began: float
    ended: float
    output_tok_s: float
    ttft_s: float
    tpot_s: float
    tpot_by_token_s: float
    late_p99_s: float
    cpu_share: float


@dataclass(frozen=True)
class Paced:
    """The endpoint that keeps time, as it listens.

    Attributes:
        port: on loopback.
        pid: of its process.
    """

    port: int
    pid: int

    @property
    def url(self) -> str:
        """Where clients send their requests."""
        return f"http://127.0.0.1:{self.port}"

    def set_pace(self, pace: Pace) -> None:
        """Begin a new account at this pace.

        Raises:
            RuntimeError: answers are under way.
        """
        self._ask("POST", "/pace", json.dumps(asdict(pace)))

    def account(self) -> dict[str, Any]:
        """Every answer since the pace was set."""
        return self._ask("GET", "/account")

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_S)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            told: dict[str, Any] = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {told}")
        return told


@contextmanager
def pacing(folder: Path, core: int | None = None) -> Iterator[Paced]:
    """An endpoint that listens for the length of a ``with`` block.

    Args:
        folder: where it says that it is ready.
        core: the only core that it uses.

    Raises:
        RuntimeError: it ended, or did not listen within 30 s.
    """
    ready = folder.resolve() / "ready.json"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "infra.rehearsal.paced", "--folder", str(ready.parent)]
    command += [] if core is None else ["--core", str(core)]
    process = subprocess.Popen(command, cwd=tree.REPOSITORY, stdin=subprocess.DEVNULL)
    try:
        gives_up = time.monotonic() + _START_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > gives_up:
                raise RuntimeError(f"the endpoint did not listen: exit {process.poll()}")
            time.sleep(_LOOK_S)
        yield Paced(**json.loads(ready.read_text()))
    finally:
        end(process)


def truth(account: dict[str, Any]) -> Truth:
    """The figures of one account.

    Raises:
        ValueError: no whole answer is in it.
    """
    answers = account["answers"]
    whole = [one for one in answers if one["counts"] and one["counts"][-1] == one["limit"]]
    if not whole:
        raise ValueError("no answer was written to its end")
    began = min(one["arrived"] for one in answers)
    ended = max(one["times"][-1] for one in whole)
    tokens = sum(one["counts"][-1] for one in answers if one["counts"])
    decoding = [
        (one["times"][-1] - one["times"][0], one["counts"][-1] - one["counts"][0])
        for one in whole
        if one["counts"][-1] > one["counts"][0]
    ]
    return Truth(
        requests=len(whole),
        broken=len(answers) - len(whole),
        tokens=tokens,
        began=began,
        ended=ended,
        output_tok_s=tokens / (ended - began),
        ttft_s=_mean([one["times"][0] - one["arrived"] for one in whole]),
        tpot_s=_mean([seconds / after for seconds, after in decoding]),
        tpot_by_token_s=sum(s for s, _ in decoding) / sum(after for _, after in decoding),
        late_p99_s=account["late_p99_s"],
        cpu_share=account["cpu_s"] / (ended - began),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
