"""What a row of the failure table is: a class of failures and the texts that betray it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Retry = Literal["no", "same_once", "after_change", "after_gpus_free"]
"""Whether a second try can help: never, once as it is, after an edit, or once the GPUs are free."""

Fixer = Literal["user", "host", "engine", "us"]
"""Who can mend it: the sweep's author, whoever runs the host, the engine's authors, this program."""


@dataclass(frozen=True)
class Signature:
    """One text by which a failure class is known, and what must hold besides.

    Named groups of the pattern become details of the failure.

    Attributes:
        pattern: Searched in an exception's text, or matched at the head of a log record.
        where: An exception (`Class: message` at the end of a traceback) or a record's head.
        frames: Must be found among the traceback's frames (`path.py in function`, one a line).
        drafter: True where only the drafter can be meant, False where only the target can.
        draft_path: What the server's arguments must say of the drafter's path.
        framework: The engine that must have written it.
        stages: The stages in which it may happen; empty for any.
        hints: What to change, in imperatives; may name details in braces.
        retry: Where this text deserves another answer than its class.
        who: Where somebody else can mend it than for the rest of its class.
    """

    pattern: re.Pattern[str]
    where: Literal["exception", "line"] = "exception"
    frames: re.Pattern[str] | None = None
    drafter: bool | None = None
    draft_path: Literal["given", "absent"] | None = None
    framework: Literal["sglang", "vllm"] | None = None
    stages: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    retry: Retry | None = None
    who: Fixer | None = None


@dataclass(frozen=True)
class FailureClass:
    """One class of failures: what it means and what to do about it.

    Attributes:
        name: The word by which records are searched.
        cause: What happened, in one sentence.
        remedy: What to do, in one sentence.
        who: Who can do it.
        retry: Whether a second try can help.
        citation: Where the knowledge is from; empty for what this program decides itself.
        signatures: How it shows in a log; empty for what is seen elsewhere.
    """

    name: str
    cause: str
    remedy: str
    who: Fixer
    retry: Retry
    citation: str = ""
    signatures: tuple[Signature, ...] = ()


def seen(
    text: str,
    *hints: str,
    frames: str | None = None,
    drafter: bool | None = None,
    draft_path: Literal["given", "absent"] | None = None,
    framework: Literal["sglang", "vllm"] | None = None,
    stages: tuple[str, ...] = (),
    retry: Retry | None = None,
    who: Fixer | None = None,
) -> Signature:
    """Make a signature that is searched in an exception's text."""
    return Signature(
        pattern=re.compile(text),
        frames=None if frames is None else re.compile(frames),
        drafter=drafter,
        draft_path=draft_path,
        framework=framework,
        stages=stages,
        hints=hints,
        retry=retry,
        who=who,
    )


def said(text: str, *hints: str, retry: Retry | None = None) -> Signature:
    """Make a signature that a log record must begin with."""
    return Signature(pattern=re.compile(text), where="line", hints=hints, retry=retry)
