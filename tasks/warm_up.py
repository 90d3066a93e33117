"""The stage warm_up: traffic before the first probe, kept apart, until the server has settled."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from tasks.drive import Load, drive, fetch_samples, payload
from tasks.samples import read_samples
from tasks.stability import difference, paces
from tasks.venue import failed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from configs.probe import Stream
    from tasks.drive import Server, Text
    from tasks.record import Sample

_PAIR = 2
_SHORT_S = 3.0
_GROW = 4
"""Windows of a fast server are so short that chance alone sets them apart (a third, on an H200 with
windows of 0.3 s): while they are shorter than three seconds the next ones are four times as long."""


class Warmed(NamedTuple):
    """How the warm-up went."""

    note: str
    unstable: tuple[str, ...]
    """Probes that did not settle, in words; empty when all is well."""


def warm_up(server: Server, probes: Mapping[str, tuple[Stream, Sequence[Text]]]) -> Warmed:
    """Traffic for each probe at its highest concurrency: a fixed part, then windows.

    Two requests per slot by default (pitfalls 14), so that what compiles per batch size has
    compiled: filling up and running dry, it passes the smaller sizes too. Then windows of one
    request per slot, until two in succession agree. The first two windows are driven together
    with the fixed part, so that a server that is settled costs no second client.

    Raises:
        StageFailedError: The prompts do not fit into the server's context, no request of a probe
            came back, or the engine died.
    """
    _must_fit(server, probes)
    ways = [_warm(server, name, probe, texts) for name, (probe, texts) in probes.items()]
    note = "; ".join(way.note for way in ways)
    return Warmed(note, tuple(said for way in ways for said in way.unstable))


def _must_fit(server: Server, probes: Mapping[str, tuple[Stream, Sequence[Text]]]) -> None:
    """Refuses, before any traffic, what the server would refuse request by request."""
    limit = server.follower.start.facts().context_len
    for name, (probe, _) in probes.items():
        prompt, answer = probe.prompt_tokens, probe.sampling.max_new_tokens
        if limit is not None and prompt and prompt + answer > limit:
            raise failed(
                "warm_up",
                "context_too_long",
                f"probe {name}: {prompt} tokens before the question and {answer} of an answer do "
                f"not fit into the server's context of {limit} tokens",
            )


def _warm(server: Server, name: str, probe: Stream, texts: Sequence[Text]) -> Warmed:
    """One probe's warm-up; a further pair begins with one request per slot to fill up again."""
    plan, level = probe.warm_up, max(probe.concurrency)
    rest, size, skip = itertools.cycle(texts), plan.window(level), level * plan.per_slot
    load = Load("warm_up", f"warm-{name}", probe, [], level)
    if plan.max_windows == 0:
        _traffic(server, load, rest, skip)
        return Warmed(f"{name}: {skip} requests", ())
    began = time.monotonic()
    sent = windows = 0
    while True:
        samples = _traffic(server, load, rest, skip + _PAIR * size)
        sent, windows = sent + skip + _PAIR * size, windows + _PAIR
        server.meter.heard(samples)
        seen = paces(samples, skip, size, level)
        apart = difference(*seen) if len(seen) == _PAIR else None
        late = windows >= plan.max_windows or time.monotonic() - began > plan.max_s
        if late or (apart is not None and apart <= plan.tolerance):
            return _told(f"{name}: {sent} requests, {windows} windows", apart, plan.tolerance)
        load = load._replace(job=f"warm-{name}-{windows // _PAIR + 1}")
        skip = level
        if seen and min(pace.seconds for pace in seen) < _SHORT_S:
            size *= _GROW


def _told(what: str, apart: float | None, tolerance: float) -> Warmed:
    """How far the last two windows were apart, and whether that is too far."""
    if apart is None:
        note = f"{what}, the last two without the load that was asked for"
    elif apart > tolerance:
        note = f"{what}, the last two {apart:.0%} apart (more than {tolerance:.0%}): not stable"
    else:
        return Warmed(f"{what}, the last two {apart:.1%} apart: stable", ())
    return Warmed(note, (note,))


def _traffic(server: Server, load: Load, rest: Iterator[Text], count: int) -> tuple[Sample, ...]:
    """Drives so many requests; returns what is known of them."""
    requests = [
        {
            "id": f"warm-{number}",
            "kind": text.kind,
            "payload": payload(
                server.site.engine.kind,
                text,
                load.probe,
                max_new_tokens=load.probe.warm_up.max_new_tokens,
            ),
        }
        for number, text in zip(range(count), rest, strict=False)
    ]
    result = drive(server, load._replace(requests=requests))
    if result.get("completed", 0) == 0:
        raise failed("warm_up", "probe_failed", f"no request of {load.job} came back")
    raw = fetch_samples(server.site, load.job)
    return read_samples(raw.decode(errors="replace").splitlines(), server.site.host.time_scale)
