"""Which of the wanted methods a class has, in what form, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import libcst as cst
from libcst import matchers
from libcst.helpers import get_full_name_for_node

from tasks.module_scope import (
    Constants,
    Statement,
    attachments,
    classes,
    constants_of,
    rebound,
    statements,
    targets,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Form = Literal["method", "async", "property", "stub", "value"]

# Bases that are known to bring none of the hooks; any other base may.
_PLAIN_BASES: Final = frozenset(
    {"object", "nn.Module", "torch.nn.Module", "Module", "ABC", "abc.ABC", "Generic", "Protocol"}
)
_PROPERTIES: Final = frozenset({"property", "cached_property", "functools.cached_property"})
_DYNAMIC: Final = ("__getattr__", "__getattribute__")


@dataclass(frozen=True)
class ClassHooks:
    """What the text of a module says about one class and the methods that are wanted of it."""

    node: cst.ClassDef
    own: dict[str, Form]
    """Wanted names that the class body surely binds."""
    conditional: frozenset[str]
    """Wanted names that a class body binds in some branch only, and nothing binds surely."""
    switched_on: frozenset[str]
    """Those of ``conditional`` whose branch a literal in the file turns on."""
    inherited: frozenset[str]
    """Wanted methods that a base class in the same file has."""
    outside: frozenset[str]
    """Wanted names that code outside the class body sets, or may set, on it."""
    outside_certain: frozenset[str]
    """Those of ``outside`` that are set whenever the module is imported."""
    dynamic: bool
    """Names that cannot be read off the text are set on the class from outside."""
    foreign_bases: tuple[str, ...]
    """Base classes that another module defines: they may bring the methods."""
    foreign_decorators: tuple[str, ...]
    """Class decorators that another module defines: they may add the methods."""
    metaclass: str | None
    """The metaclass, where one is named."""
    has_getattr: bool
    """The class or a base in this file answers unknown attributes itself."""
    is_rebound: bool
    """The module binds the class's name again outside the class statement."""
    entry: tuple[str, ...] | None
    """The classes that ``EntryClass`` names; ``None`` where that cannot be read."""
    attributes: frozenset[str]
    """Attributes of ``self``, and names in the body, that the class and its bases here use."""

    @property
    def undecided(self) -> bool:
        """Whether only an import can tell what the class has at run time."""
        return bool(
            self.dynamic
            or self.foreign_bases
            or self.foreign_decorators
            or self.metaclass
            or self.has_getattr
        )


def read_class(module: cst.Module, node: cst.ClassDef, names: Sequence[str]) -> ClassHooks:
    """Describe one class of a module with regard to the wanted methods."""
    known = {name: found[0] for name, found in classes(module).items() if len(found) == 1}
    family = tuple(_family(node, known))
    own, conditional = _bound(node.body.body, names)
    inherited: set[str] = set()
    for base in family[1:]:
        forms, maybe = _bound(base.body.body, names)
        # A base that only raises NotImplementedError asks for the method; it does not have it.
        inherited |= {name for name, form in forms.items() if form == "method"}
        conditional |= maybe
    provided = inherited | own.keys()
    conditional -= provided
    hung = attachments(module, node.name.value, names)
    top = {item.name.value for item in module.body if isinstance(item, _DEFINITIONS)}
    decorators = [_name(item.decorator) for item in node.decorators]
    constants = constants_of(module.body)
    return ClassHooks(
        node=node,
        own=own,
        conditional=frozenset(conditional),
        switched_on=frozenset(conditional & _switched_on(family, constants)),
        inherited=frozenset(inherited - own.keys()),
        outside=(hung.certain | hung.possible) - provided,
        outside_certain=hung.certain - provided,
        dynamic=hung.dynamic,
        foreign_bases=tuple(sorted(set(_foreign(family, known)))),
        foreign_decorators=tuple(name for name in decorators if name.split(".")[0] not in top),
        metaclass=next((_name(item.value) for item in node.keywords), None),
        has_getattr=any(_bound(item.body.body, _DYNAMIC)[0] for item in family),
        is_rebound=rebound(module, node.name.value),
        entry=_entry(module),
        attributes=frozenset(name for item in family for name in _attributes(item)),
    )


_DEFINITIONS = (cst.FunctionDef, cst.ClassDef)


def form_of_text(text: str) -> Form:
    """Say in what form a ``def``, given as text, binds its name."""
    return next(form for _, form in _bindings(cst.parse_module(text).body[0]))


def _family(
    node: cst.ClassDef, known: dict[str, cst.ClassDef], seen: frozenset[str] = frozenset()
) -> Iterator[cst.ClassDef]:
    """Yield the class, then its bases in the same file, nearest first."""
    yield node
    seen |= {node.name.value}
    for base in _bases(node):
        if base in known and base not in seen:
            yield from _family(known[base], known, seen)


def _foreign(family: Sequence[cst.ClassDef], known: dict[str, cst.ClassDef]) -> Iterator[str]:
    for node in family:
        for base in _bases(node):
            if base not in known and base not in _PLAIN_BASES:
                yield base


def _bases(node: cst.ClassDef) -> Iterator[str]:
    for item in node.bases:
        yield item.star + _name(item.value)


def _name(node: cst.BaseExpression) -> str:
    """Return the dotted name in an expression, without what it is called or indexed with."""
    while isinstance(node, cst.Call | cst.Subscript):
        node = node.func if isinstance(node, cst.Call) else node.value
    return get_full_name_for_node(node) or "an expression"


def _bound(body: Sequence[Statement], names: Sequence[str]) -> tuple[dict[str, Form], set[str]]:
    """Return the names a class body surely binds, with their form, and those it may bind.

    What a literal condition decides counts as a switch, which somebody may turn.
    """
    sure: dict[str, Form] = {}
    maybe: set[str] = set()
    for node in body:
        branches = _branches(node)
        if not branches:
            sure.update((name, form) for name, form in _bindings(node) if name in names)
            continue
        found = [_bound(branch, names) for branch in branches]
        every = set(names).intersection(*(forms for forms, _ in found))
        sure.update((name, found[0][0][name]) for name in every)
        maybe.update(name for forms, may in found for name in (*forms, *may) if name not in every)
    return sure, maybe - sure.keys()


def _branches(node: Statement) -> list[Sequence[Statement]]:
    """Return the ways a compound statement can go; one of them does. Empty for a simple one."""
    match node:
        case cst.If():
            rest = node.orelse
            other = (
                _branches(rest) if isinstance(rest, cst.If) else [rest.body.body if rest else ()]
            )
            return [node.body.body, *other]
        case cst.Try() | cst.TryStar():
            tail = node.finalbody.body.body if node.finalbody else ()
            good = (*node.body.body, *(node.orelse.body.body if node.orelse else ()), *tail)
            return [good, *((*handler.body.body, *tail) for handler in node.handlers)]
        case cst.With():
            return [node.body.body]
        case cst.For() | cst.While():
            return [node.body.body, node.orelse.body.body if node.orelse else ()]
        case cst.Match():
            return [(), *(option.body.body for option in node.cases)]
        case _:
            return []


def _bindings(node: Statement) -> Iterator[tuple[str, Form]]:
    """Yield the names that one statement binds in its scope."""
    match node:
        case cst.SimpleStatementLine():
            for small in node.body:
                yield from _bindings(small)
        case cst.FunctionDef():
            yield node.name.value, _form(node)
        case cst.ClassDef():
            yield node.name.value, "value"
        case cst.Import() | cst.ImportFrom():
            for alias in node.names if not isinstance(node.names, cst.ImportStar) else ():
                yield alias.evaluated_alias or alias.evaluated_name, "method"
        case _:
            for target, value in targets(node):
                if isinstance(target, cst.Name):
                    yield target.value, _form_of_value(value)


def _form(node: cst.FunctionDef) -> Form:
    if any(_name(item.decorator) in _PROPERTIES for item in node.decorators):
        return "property"
    if node.asynchronous is not None:
        return "async"
    return "stub" if _is_stub(node) else "method"


def _form_of_value(node: cst.BaseExpression | None) -> Form:
    if isinstance(node, cst.Call) and _name(node.func) in _PROPERTIES:
        return "property"
    if isinstance(node, cst.Name) and node.value in {"None", "True", "False", "NotImplemented"}:
        return "value"
    literals = (cst.BaseNumber, cst.BaseString, cst.BaseList, cst.BaseDict, cst.Tuple)
    return "value" if isinstance(node, literals) else "method"


def _is_stub(node: cst.FunctionDef) -> bool:
    """Say whether a method does nothing but raise ``NotImplementedError``, pass or ``...``."""
    lines = list(_small(node.body.body))
    if lines and isinstance(lines[0], cst.Expr) and isinstance(lines[0].value, cst.BaseString):
        lines = lines[1:]
    if not lines:
        return True
    match lines:
        case [cst.Pass()] | [cst.Expr(value=cst.Ellipsis())]:
            return True
        case [cst.Raise(exc=cst.BaseExpression() as raised)]:
            return _name(raised) == "NotImplementedError"
        case _:
            return False


def _small(body: Iterable[Statement]) -> Iterator[Statement]:
    for node in body:
        yield from node.body if isinstance(node, cst.SimpleStatementLine) else (node,)


def _switched_on(family: Sequence[cst.ClassDef], constants: Constants) -> set[str]:
    return {
        name
        for node in family
        for statement in statements(node.body.body, constants)
        if statement.certain
        for name, _ in _bindings(statement.node)
    }


def _attributes(node: cst.ClassDef) -> set[str]:
    uses = matchers.findall(node, matchers.Attribute(value=matchers.Name("self")))
    used = {item.attr.value for item in uses if isinstance(item, cst.Attribute)}
    return used | {name for item in node.body.body for name, _ in _bindings(item)}


def _entry(module: cst.Module) -> tuple[str, ...] | None:
    """Read ``EntryClass``, by which SGLang's registry finds the models of a module."""
    entry: tuple[str, ...] | None = None
    for statement in statements(module.body):
        for target, value in targets(statement.node):
            if isinstance(target, cst.Name) and target.value == "EntryClass":
                listed = (
                    [item.value for item in value.elements]
                    if isinstance(value, cst.List | cst.Tuple)
                    else [value]
                )
                names = tuple(item.value for item in listed if isinstance(item, cst.Name))
                entry = names if len(names) == len(listed) else None
    return entry
