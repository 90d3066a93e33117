"""What a plan says of time and money before the start, and what a deadline would leave undone."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from configs.cells import Cell
from flows.budget import outlook
from tasks.forecast import RECORDED
from tasks.spans import cost, money, span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from configs.host import Host, Price
    from configs.plan import Trial
    from flows.budget import Outlook
    from flows.question import Question
    from infra.store import Store

_SHOWN = 8


def outlook_text(
    question: Question, store: Store, until: str | None = None, now: datetime | None = None
) -> Text:
    """How long, how much, until when; and where that comes from.

    Args:
        question: The sweep, with its plan.
        store: Where earlier records are.
        until: A deadline in place of the sweep's, as it is typed.
        now: With its offset.
    """
    now = now or datetime.now(UTC).astimezone()
    seen = outlook(question, store, until, now)
    lines = [f"  {line}" for line in outlook_lines(seen, tuple(question.hosts.values()), now)]
    return Text("\n").join([Text("\nTime and money", style="bold"), *map(Text, lines)])


def outlook_lines(seen: Outlook, hosts: Sequence[Host], now: datetime) -> Iterator[str]:
    """The same as plain lines."""
    forecast = seen.together
    if seen.done:
        yield f"{seen.done} trials of the latest run stand and are not run again"
    if not forecast.trials:
        return
    some = f"{forecast.trials} trial{'s' if forecast.trials != 1 else ''}"
    if forecast.seconds is None or forecast.late_s is None:
        yield (
            f"unknown how long {some} take: for {forecast.unknown} of them nothing is recorded "
            "that is like them; by the sweep's own patience at most "
            f"{span(forecast.at_most_s)}{_costs(hosts, forecast.at_most_s)}{_at_once(seen)}"
        )
    else:
        yield (
            f"{some} take about {span(forecast.seconds)}, {span(forecast.late_s)} if each is as "
            f"slow as the slowest recorded{_at_once(seen)}"
        )
        ends = now + timedelta(seconds=forecast.seconds)
        yield f"begun now, the sweep ends at {ends:%H:%M %Z on %A}, {ends.day} {ends:%B}"
        yield from _prices(hosts, forecast.seconds, forecast.late_s)
    for grounds, number in forecast.grounds.items():
        first = "" if grounds == RECORDED else "a first estimate from "
        yield f"for {number} of them by {first}{grounds}"
    yield from _deadline(seen)


def _at_once(seen: Outlook) -> str:
    """Where there are several hosts, what that rests on."""
    if seen.places < 2:
        return ""
    after = (
        f"; one after another, as with `eagle3-sweep run`: {span(whole)}"
        if (whole := seen.forecast.seconds)
        else ""
    )
    return f", on {seen.places} hosts at once, as through Prefect{after}"


def _deadline(seen: Outlook) -> Iterator[str]:
    if seen.deadline is None:
        return
    if seen.allotment is None:
        yield f"until {seen.deadline.text}: unknown how many of them fit; none is begun after it"
        return
    left = seen.allotment.left
    if not left:
        yield f"until {seen.deadline.text}: all fit, even at the slowest recorded"
        return
    blocks = Counter(trial.block for trial in seen.allotment.run)
    yield (
        f"until {seen.deadline.text}: {len(seen.allotment.run)} fit, in {len(blocks)} blocks; "
        f"{len(left)} would be left undone, the first of them first if there is time after all:"
    )
    for trial in left[:_SHOWN]:
        yield f"  {_named(trial)}"
    if len(left) > _SHOWN:
        yield f"  and {len(left) - _SHOWN} more"


def _named(trial: Trial) -> str:
    return f"block {trial.block}: {Cell(trial.arm, trial.levels)}"


def _prices(hosts: Sequence[Host], seconds: float, late_s: float) -> Iterator[str]:
    """What it costs; all hosts are held meanwhile."""
    for price in _sums(hosts):
        low, high = (money(cost(price, each), price.currency) for each in (seconds, late_s))
        yield (
            f"{low}, at most {high} by these times, at "
            f"{money(price.amount, price.currency)} per hour"
        )
    silent = [host.name for host in hosts if host.price_per_hour is None]
    if silent:
        yield f"price unknown: no price_per_hour in the host file of {', '.join(silent)}"


def _costs(hosts: Sequence[Host], seconds: float) -> str:
    said = [money(cost(price, seconds), price.currency) for price in _sums(hosts)]
    return f" ({', '.join(said)})" if said else ""


def _sums(hosts: Sequence[Host]) -> list[Price]:
    """The price of all hosts together, for each currency apart."""
    found: dict[str, Price] = {}
    for host in hosts:
        price = host.price_per_hour
        if price is not None:
            known = found.get(price.currency)
            total = price.amount + (known.amount if known else 0.0)
            found[price.currency] = price.model_copy(update={"amount": total})
    return list(found.values())
