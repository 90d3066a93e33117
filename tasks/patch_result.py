"""What a patch did to one file, or why it left it alone, as it goes on record."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from configs.values import Value

NewlineName = Literal["lf", "crlf", "cr"]

Reason = Literal[
    "methods_missing",
    "already_provided",
    "file_not_found",
    "not_valid_python",
    "syntax_not_supported",
    "class_not_found",
    "class_defined_more_than_once",
    "class_body_on_one_line",
    "method_defined_conditionally",
    "method_is_async",
    "method_is_property",
    "method_is_stub",
    "method_is_not_callable",
    "provided_outside_class_body",
    "delegate_attribute_missing",
    "encoding_too_small",
    "insertion_failed",
]


class PatchResult(Value):
    """What a patch does, or would do, to one file; all but ``new_source`` goes on record."""

    patch: str
    """Name of the patch."""
    action: Literal["insert", "complete_already", "refuse"]
    """What is to be done with the file; only ``insert`` changes it."""
    reason: Reason
    """Why, as a name to search for."""
    message: str
    """Why, in words, with the line where there is one."""
    missing: tuple[str, ...] = ()
    """Wanted methods that neither the class body nor a base class in the file has."""
    runtime_missing: tuple[str, ...] | None = None
    """Wanted methods the imported class lacks; ``None`` where only an import could tell."""
    inserted: tuple[str, ...] = ()
    """Methods that were added, in order."""
    applied_earlier: bool = False
    """The class carries this patch's mark from an earlier run."""
    insert_after: str | None = None
    """The method that the insertion follows, or ``end_of_class``."""
    insert_line: int | None = None
    """Line number of the last line before the insertion."""
    indent: str | None = None
    """White space in front of the class's statements."""
    newline: NewlineName | None = None
    """How the inserted lines end."""
    final_newline_before: bool | None = None
    """Whether the file ended with a newline."""
    proven: bool = False
    """After an insertion: the new text compiles (by the Python of this program), the class has
    every method, a second run finds nothing to do, and every byte outside the insertion and every
    other class is as it was. A result that fails any of these is a refusal."""
    other_models_unchanged: tuple[str, ...] = ()
    """Other classes that ``EntryClass`` names; their text is the same as before."""
    warnings: tuple[str, ...] = ()
    """What to look at before trusting the result."""
    sha256_before: str
    """Digest of the file as it was."""
    sha256_after: str
    """Digest of the file as it will be."""
    diff: str = ""
    """The change as a unified diff."""
    new_source: bytes = Field(default=b"", exclude=True, repr=False)
    """The file as it will be; the old bytes unless the action is ``insert``."""
