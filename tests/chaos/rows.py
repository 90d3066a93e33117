"""The table, filled: its rows are registered by the modules that play them."""

from __future__ import annotations

from tests.chaos import cancels, contact, engines, hosts, indexes, kills, prefects
from tests.chaos.table import ROWS

__all__ = ["ROWS", "cancels", "contact", "engines", "hosts", "indexes", "kills", "prefects"]
