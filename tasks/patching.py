"""Decide whether a patch is needed, add its methods to a module's text, and prove the result."""

from __future__ import annotations

import hashlib
import warnings as python_warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import libcst as cst

from configs.patch import Delegate, Patch
from configs.version import within
from tasks.class_hooks import ClassHooks, Form, form_of_text, read_class
from tasks.insertion import Place, find_place, insert, parseable, render, split_lines, unified_diff
from tasks.module_scope import classes
from tasks.patch_result import PatchResult, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNUSABLE: Final[dict[Form, Reason]] = {
    "async": "method_is_async",
    "property": "method_is_property",
    "stub": "method_is_stub",
    "value": "method_is_not_callable",
}


class _Refusal(NamedTuple):
    """Why the file is to be left alone."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class _Reading:
    """A file that parses, the class in it, and what was asked of it."""

    source: bytes
    patch: Patch
    version: str | None
    module: cst.Module
    hooks: ClassHooks

    @property
    def missing(self) -> tuple[str, ...]:
        have = self.hooks.own.keys() | self.hooks.inherited
        return tuple(name for name in self.patch.method_names if name not in have)

    @property
    def runtime_missing(self) -> tuple[str, ...] | None:
        found = self.hooks.outside_certain | self.hooks.switched_on
        rest = tuple(name for name in self.missing if name not in found)
        return None if rest and self.hooks.undecided else rest

    @property
    def applied_earlier(self) -> bool:
        return _mark(self.patch) in self.module.code_for_node(self.hooks.node)


def apply_patch(source: bytes | None, patch: Patch, version: str | None = None) -> PatchResult:
    """Add to a class the methods of a patch that it lacks.

    The text of the file decides, not the version: snapshots and hand-made builds carry numbers
    that say nothing about one method. A version outside the patch's range is a warning.

    Args:
        source: the file's bytes; ``None`` where the installed package has no such file.
        patch: what the class should have.
        version: the package's version, where it is known.
    """
    if source is None:
        return _refused(b"", patch, _Refusal("file_not_found", patch.below))
    reading = _read(source, patch, version)
    if isinstance(reading, _Refusal):
        return _refused(source, patch, reading)
    refusal = _unusable(reading) or (_uninsertable(reading) if reading.missing else None)
    if refusal is not None:
        return _refused(source, patch, refusal, reading)
    return _inserted(reading) if reading.missing else _complete(reading)


def _read(source: bytes, patch: Patch, version: str | None) -> _Reading | _Refusal:
    unreadable = _unreadable(source, patch)
    if unreadable is not None:
        return unreadable
    module = cst.parse_module(parseable(source))
    found = classes(module).get(patch.class_name, [])
    if not found:
        return _Refusal("class_not_found", f"no class {patch.class_name} here. {patch.below}")
    if len(found) > 1:
        return _Refusal(
            "class_defined_more_than_once",
            f"{patch.class_name} is defined {len(found)} times: which one counts is decided at import",
        )
    hooks = read_class(module, found[0], patch.method_names)
    return _Reading(source, patch, version, module, hooks)


def _unreadable(source: bytes, patch: Patch) -> _Refusal | None:
    """Say what keeps Python, or this program, from reading the file, with the line."""
    try:
        with python_warnings.catch_warnings():
            python_warnings.simplefilter("ignore")  # the file's own lint is not our business
            compile(source, patch.module, "exec", dont_inherit=True)
        cst.parse_module(parseable(source))
    except SyntaxError as error:
        return _Refusal("not_valid_python", f"line {error.lineno or '?'}: {error.msg}")
    except (ValueError, RecursionError) as error:
        return _Refusal("not_valid_python", str(error))
    except cst.ParserSyntaxError as error:
        said = f"line {error.raw_line}: Python reads it, the syntax tree library does not"
        return _Refusal("syntax_not_supported", said)
    return None


def _unusable(reading: _Reading) -> _Refusal | None:
    """Refuse where a wanted name exists in a way that neither works nor can be added to."""
    hooks, patch = reading.hooks, reading.patch
    for method in patch.methods:
        form = hooks.own.get(method.name, "method")
        if form not in {"method", form_of_text(method.text())}:
            message = f"{patch.class_name}.{method.name} exists, but not as a plain method ({form})"
            return _Refusal(_UNUSABLE[form], message)
    if hooks.conditional:
        names = ", ".join(sorted(hooks.conditional))
        return _Refusal("method_defined_conditionally", f"defined only under a condition: {names}")
    if reading.missing and (hooks.outside or hooks.dynamic):
        names = ", ".join(sorted(hooks.outside)) or "names that cannot be read off the text"
        return _Refusal(
            "provided_outside_class_body",
            f"set on {patch.class_name} outside its body, where it would shadow an insertion: {names}",
        )
    return None


def _uninsertable(reading: _Reading) -> _Refusal | None:
    """Refuse where methods are missing but cannot sensibly be added."""
    hooks, patch = reading.hooks, reading.patch
    if isinstance(hooks.node.body, cst.SimpleStatementSuite):
        message = f"the body of {patch.class_name} stands on the line of its class statement"
        return _Refusal("class_body_on_one_line", f"{message}: edit the file by hand")
    for method in patch.methods:
        if method.name not in reading.missing or not isinstance(method, Delegate):
            continue
        if method.to not in hooks.attributes and not hooks.foreign_bases:
            message = f"{patch.class_name} has no attribute {method.to} to hand {method.name} on to"
            return _Refusal("delegate_attribute_missing", message)
    return None


def _refused(
    source: bytes, patch: Patch, refusal: _Refusal, reading: _Reading | None = None
) -> PatchResult:
    return PatchResult(
        patch=patch.name,
        action="refuse",
        reason=refusal.reason,
        message=refusal.message,
        missing=reading.missing if reading else (),
        runtime_missing=reading.runtime_missing if reading else None,
        applied_earlier=reading.applied_earlier if reading else False,
        sha256_before=_digest(source),
        sha256_after=_digest(source),
        new_source=source,
    )


def _complete(reading: _Reading) -> PatchResult:
    by = "by this patch, in an earlier run" if reading.applied_earlier else "not by this patch"
    return PatchResult(
        patch=reading.patch.name,
        action="complete_already",
        reason="already_provided",
        message=f"{reading.patch.class_name} has every method, {by}",
        runtime_missing=(),
        applied_earlier=reading.applied_earlier,
        warnings=tuple(_entry_doubts(reading)),
        sha256_before=_digest(reading.source),
        sha256_after=_digest(reading.source),
        new_source=reading.source,
    )


def _inserted(reading: _Reading) -> PatchResult:
    source, patch = reading.source, reading.patch
    place = find_place(source, reading.module, reading.hooks.node, patch.after)
    methods = [method for method in patch.methods if method.name in reading.missing]
    text = render(methods, _mark(patch), place)
    try:
        new = insert(source, text, place, reading.module.encoding)
    except UnicodeEncodeError as error:
        return _refused(source, patch, _Refusal("encoding_too_small", str(error)), reading)
    after = _read(new, patch, reading.version)
    said = after.message if isinstance(after, _Refusal) else _broken(reading, after, place)
    if said is not None:
        return _refused(source, patch, _Refusal("insertion_failed", said), reading)
    return PatchResult(
        patch=patch.name,
        action="insert",
        reason="methods_missing",
        message=f"{patch.class_name} lacks {', '.join(reading.missing)}",
        missing=reading.missing,
        runtime_missing=reading.runtime_missing,
        inserted=reading.missing,
        applied_earlier=reading.applied_earlier,
        insert_after=place.anchor or "end_of_class",
        insert_line=place.line,
        indent=place.indent,
        newline=place.newline_name,
        final_newline_before=source.endswith((b"\n", b"\r")),
        proven=True,
        other_models_unchanged=_other_models(reading.hooks),
        warnings=(*_doubts(reading), *_entry_doubts(reading), *_newline_doubts(place)),
        sha256_before=_digest(source),
        sha256_after=_digest(new),
        diff=unified_diff(source, new, patch.module, reading.module.encoding),
        new_source=new,
    )


def _broken(before: _Reading, after: _Reading, place: Place) -> str | None:
    """Check an insertion against the file that it was made from; ``None`` if all is well."""
    lines = split_lines(before.source)
    head, tail = b"".join(lines[: place.line]), b"".join(lines[place.line :])
    if not (after.source.startswith(head) and after.source.endswith(tail)):
        return "bytes outside the insertion changed"
    if after.missing or _unusable(after) is not None:
        return f"the class still lacks {', '.join(after.missing)}"
    old, new = before.module, after.module
    name = before.patch.class_name
    if _others(old, name) != _others(new, name) or len(old.body) != len(new.body):
        return f"the insertion reaches beyond {name}"
    return None


def _others(module: cst.Module, class_name: str) -> dict[str, list[str]]:
    """The text of every other class, by name."""
    return {
        name: [module.code_for_node(node) for node in found]
        for name, found in classes(module).items()
        if name != class_name
    }


def _other_models(hooks: ClassHooks) -> tuple[str, ...]:
    return tuple(name for name in hooks.entry or () if name != hooks.node.name.value)


def _doubts(reading: _Reading) -> Iterator[str]:
    """What the text alone cannot settle about an insertion."""
    hooks, patch = reading.hooks, reading.patch
    look = "check by import before patching"
    for base in hooks.foreign_bases:
        yield f"base {base} comes from another module: methods could be inherited; {look}"
    for decorator in hooks.foreign_decorators:
        yield f"decorator {decorator} comes from another module: it could add methods; {look}"
    if hooks.metaclass:
        yield f"metaclass {hooks.metaclass} could add methods; {look}"
    if hooks.has_getattr:
        yield f"{patch.class_name} has its own __getattr__: methods could be answered by it; {look}"
    if hooks.is_rebound:
        yield f"the name {patch.class_name} is bound again outside its class statement; {look}"
    if reading.version is not None:
        yield from _version_doubts(reading.version, patch)


def _version_doubts(version: str, patch: Patch) -> Iterator[str]:
    try:
        if not within(version, patch.versions):
            yield (
                f"{patch.package} {version} is outside the patch's range {patch.versions}: "
                f"the file is not the one of that release"
            )
    except ValueError as error:
        yield f"the version could not be read: {error}"


def _entry_doubts(reading: _Reading) -> Iterator[str]:
    entry, name = reading.hooks.entry, reading.patch.class_name
    if entry is not None and name not in entry:
        yield f"EntryClass names {', '.join(entry) or 'nothing'}, not {name}: it is never served"


def _newline_doubts(place: Place) -> Iterator[str]:
    if place.mixed_newlines:
        yield f"the file mixes line endings; the insertion uses {place.newline_name}"


def _mark(patch: Patch) -> str:
    return f"Added by eagle3-sweep, patch {patch.name}."


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()
