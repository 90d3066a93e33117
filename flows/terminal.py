"""What the command line writes: lines that stay, and one line of progress that is rewritten."""

from __future__ import annotations

import os
import sys

from rich.console import Console

console = Console(highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """A line to the user."""
    console.print(text, markup=False)


class Progress:
    """One line of progress that is rewritten, or plain lines where there is no terminal."""

    def __init__(self) -> None:
        self._tty = sys.stderr.isatty()
        self._last = ""

    def show(self, text: str) -> None:
        """Replaces the progress line."""
        if text == self._last:
            return
        self._last = text
        if self._tty:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            sys.stderr.write(f"\r\x1b[2K{text[: width - 1]}")
            sys.stderr.flush()

    def line(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        say(text)

    def clear(self) -> None:
        """Takes the progress line away."""
        if self._tty and self._last:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
        self._last = ""
