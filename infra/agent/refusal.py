"""A foreseen refusal: a class that programs compare and a message that people read."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """The agent will not do what was asked, and says why.

    Attributes:
        error: Snake-case class, stable across versions.
        message: One sentence for people.
        more: Further fields of the answer, for example the holder of a claim.
    """

    def __init__(self, error: str, message: str, **more: Any) -> None:
        super().__init__(f"{error}: {message}")
        self.error = error
        self.message = message
        self.more = more

    def answer(self) -> dict[str, Any]:
        """The refusal as the one JSON object of the answer."""
        return {"ok": False, "error": self.error, "message": self.message, **self.more}
