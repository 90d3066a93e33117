"""The table, filled: its rows are registered by the modules that play them."""

from __future__ import annotations

from tests.chaos import contact, engines
from tests.chaos.table import ROWS

__all__ = ["ROWS", "contact", "engines"]
