"""Where and how text goes into a class so that every other byte of the file stays."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from configs.patch import Body, Delegate
    from tasks.patch_result import NewlineName

# Python ends a line at these three only; str.splitlines also at form feeds and others.
_LINES: Final = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_LEAD: Final = re.compile(rb"[ \t\f]*")
_FORM_FEED: Final = re.compile(rb"(?<![^\r\n])[ \t\f]*\f")
_NEWLINES: Final[Mapping[bytes, NewlineName]] = {b"\n": "lf", b"\r\n": "crlf", b"\r": "cr"}


@dataclass(frozen=True)
class Place:
    """Where to insert, and what the text there must look like."""

    line: int
    """Number of lines that stay in front of the insertion."""
    anchor: str | None
    """The method that the insertion follows; ``None`` for the end of the class."""
    indent: str
    """White space in front of a statement of the class body."""
    unit: str
    """One step of indentation."""
    newline: bytes
    """How lines of the file end."""
    mixed_newlines: bool
    """The file ends its lines in more than one way."""

    @property
    def newline_name(self) -> NewlineName:
        """Name of the line ending."""
        return _NEWLINES[self.newline]


def split_lines(source: bytes) -> list[bytes]:
    """Split into lines as Python does, each with its ending."""
    return _LINES.findall(source)


def parseable(source: bytes) -> bytes:
    """Return the text for libcst, which trips over a form feed in front of a statement.

    Python ignores it and what stands before it. Lines stay lines.
    """
    return _FORM_FEED.sub(b"", source)


def find_place(source: bytes, module: cst.Module, node: cst.ClassDef, after: str | None) -> Place:
    """Choose the line behind the anchor method, or behind the last statement of the class."""
    lines = split_lines(source)
    positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    body = node.body.body
    anchor = next(
        (item for item in body if isinstance(item, cst.FunctionDef) and item.name.value == after),
        None,
    )
    indent = _lead(lines[_first_line(body[0], positions) - 1])
    outer = _lead(lines[positions[node].start.line - 1])
    line = positions[anchor or body[-1]].end.line
    newline, mixed = _newline(lines, line)
    return Place(
        line=_past_inner_comments(lines, line, indent),
        anchor=None if anchor is None else after,
        indent=indent.decode("ascii"),
        unit=(indent.removeprefix(outer) if indent.startswith(outer) else indent).decode("ascii"),
        newline=newline,
        mixed_newlines=mixed,
    )


def render(methods: Sequence[Delegate | Body], comment: str, place: Place) -> str:
    """Write methods with the class's own indentation, lines ending in a plain line feed."""
    blocks = [_reindented(method.text(), place) for method in methods]
    blocks[0] = f"{place.indent}# {comment}\n{blocks[0]}"
    return "\n".join(blocks)


def insert(source: bytes, text: str, place: Place, encoding: str) -> bytes:
    """Put text behind a line of the file, set off by blank lines.

    Raises:
        UnicodeEncodeError: the file's encoding cannot hold the text.
    """
    lines = split_lines(source)
    before, behind = b"".join(lines[: place.line]), b"".join(lines[place.line :])
    if place.line < len(lines) and lines[place.line].strip():
        text += "\n"
    block = "\n" + text
    if not lines[place.line - 1].endswith((b"\n", b"\r")):
        # The file has no final newline: the text needs one in front and gets none behind.
        block = "\n" + block.rstrip("\n")
    plain = "utf-8" if encoding.lower().replace("_", "-") == "utf-8-sig" else encoding
    return before + block.encode(plain).replace(b"\n", place.newline) + behind


def unified_diff(old: bytes, new: bytes, path: str, encoding: str) -> str:
    """Show the change between two texts; every line keeps its own ending."""
    before, after = (
        [line.decode(encoding, "replace") for line in split_lines(s)] for s in (old, new)
    )
    out = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
    return "".join(
        line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n"
        for line in out
    )


def _reindented(text: str, place: Place) -> str:
    """Render a method, as parsed from four-space text, inside a class of the place's indent.

    Only the white space in front of statements changes; a string that spans lines stays.
    """
    method = cst.parse_module(text).body[0]
    block = cst.IndentedBlock(body=[method], indent=place.indent)
    shell = cst.ClassDef(name=cst.Name("_"), body=block)
    code = cst.Module(body=[shell], default_indent=place.unit, default_newline="\n").code
    return code.split("\n", 1)[1]


def _first_line(node: cst.CSTNode, positions: Mapping[cst.CSTNode, CodeRange]) -> int:
    """First line of a statement, its decorators included."""
    first = node
    if isinstance(node, cst.FunctionDef | cst.ClassDef) and node.decorators:
        first = node.decorators[0]
    return positions[first].start.line


def _lead(line: bytes) -> bytes:
    """White space in front of a line; a form feed starts the count anew, as in Python."""
    found = _LEAD.match(line)
    return found[0].rpartition(b"\f")[2] if found else b""


def _past_inner_comments(lines: Sequence[bytes], line: int, indent: bytes) -> int:
    """Step over comments that still belong to the block above, being indented deeper."""
    last = line
    for number in range(line, len(lines)):
        text = lines[number].strip()
        if text and not (text.startswith(b"#") and len(_lead(lines[number])) > len(indent)):
            break
        if text:
            last = number + 1
    return last


def _newline(lines: Sequence[bytes], line: int) -> tuple[bytes, bool]:
    """The file's usual line ending, on a tie the one at the place; and whether it has several."""
    endings = Counter(found for text in lines if (found := _ending(text)))
    if not endings:
        return b"\n", False
    most = max(endings.values())
    usual = [ending for ending, count in endings.items() if count == most]
    here = _ending(lines[line - 1])
    return (here if here in usual else usual[0]), len(endings) > 1


def _ending(line: bytes) -> bytes:
    return line[len(line.rstrip(b"\r\n")) :]
