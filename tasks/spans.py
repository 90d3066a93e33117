"""Spans of time and sums of money in words, as plan, report and notices say them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from configs.host import Price

_MINUTE, _HOUR = 60.0, 3600.0


def span(seconds: float) -> str:
    """``7 h 50 min``, ``12 min``, ``40 s``: as fine as it helps."""
    if seconds < 1.5 * _MINUTE:
        return f"{seconds:.0f} s"
    minutes = round(seconds / _MINUTE)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def cost(price: Price, seconds: float) -> float:
    """What a host costs for so long, by the second."""
    return price.amount * seconds / _HOUR


def money(amount: float, currency: str) -> str:
    """``188 USD``; cents where there is little of it."""
    return f"{amount:,.2f} {currency}" if amount < 10 else f"{amount:,.0f} {currency}"
