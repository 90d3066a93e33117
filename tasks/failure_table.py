"""The one table of failure classes, in the order in which their texts are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.failure_table_arguments import ARGUMENT_FAILURES
from tasks.failure_table_drafter import DRAFTER_FAILURES
from tasks.failure_table_engine import ENGINE_FAILURES
from tasks.failure_table_host import HOST_FAILURES
from tasks.failure_table_memory import MEMORY_FAILURES

if TYPE_CHECKING:
    from tasks.failure_table_form import FailureClass

FAILURES: tuple[FailureClass, ...] = (
    *DRAFTER_FAILURES,
    *MEMORY_FAILURES,
    *ENGINE_FAILURES,
    *ARGUMENT_FAILURES,
    *HOST_FAILURES,
)
"""Specific texts stand before general ones; the first that fits names the class."""
