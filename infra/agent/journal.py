"""What a detached process has to say, for people, in the log that its stderr leads to."""

from __future__ import annotations

import contextlib
import sys
import traceback


def say(text: str) -> None:
    """Writes a line, or loses it: on a full disk the log must not end the one who ends engines."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def say_fault() -> None:
    """Writes the exception that is being handled."""
    say(traceback.format_exc())
