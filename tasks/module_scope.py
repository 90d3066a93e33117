"""What runs when a module is imported: its classes, and what is hung on them from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import libcst as cst
from libcst import matchers
from libcst.helpers import get_full_name_for_node

Statement = cst.BaseStatement | cst.BaseSmallStatement
Constants = Mapping[str, cst.BaseExpression]


class ScopeStatement(NamedTuple):
    """One statement of a scope, however deep in ``if``, ``try`` or ``for`` it stands."""

    node: Statement
    certain: bool
    """Whether it runs whenever the scope does."""
    loops: Mapping[str, tuple[str, ...] | None]
    """Loop variables around it with the literal strings they take, ``None`` where unknown."""


class Attachments(NamedTuple):
    """Names set on a class by code outside its body."""

    certain: frozenset[str]
    """Set whenever the module is imported."""
    possible: frozenset[str]
    """Named in code that may or may not run."""
    dynamic: bool
    """A ``setattr`` whose name cannot be read off the text."""


def statements(
    body: Sequence[Statement], constants: Constants | None = None
) -> Iterator[ScopeStatement]:
    """Walk a scope: into compound statements, never into functions or classes.

    A branch whose condition is a literal, or a name bound once to a literal in this scope (or
    in ``constants``), counts as certain or is passed over.
    """
    known = {**(constants or {}), **constants_of(body)}
    yield from _walk(body, certain=True, loops={}, constants=known)


def classes(module: cst.Module) -> dict[str, list[cst.ClassDef]]:
    """Every class that the module itself defines, by name; classes in functions are no part."""
    found: dict[str, list[cst.ClassDef]] = {}
    for node in _all_compound(module.body):
        if isinstance(node, cst.ClassDef):
            found.setdefault(node.name.value, []).append(node)
    return found


def attachments(module: cst.Module, class_name: str, names: Sequence[str]) -> Attachments:
    """Find ``Class.name = …`` and ``setattr(Class, name, …)`` anywhere outside class bodies."""
    aliases = {class_name}
    certain: set[str] = set()
    possible: set[str] = set()
    dynamic = False
    for statement in statements(module.body):
        _learn_alias(statement.node, aliases)
        hit = _hung_on(statement.node, aliases, statement.loops)
        dynamic = dynamic or None in hit
        (certain if statement.certain else possible).update(name for name in hit if name)
    possible |= _hung_in_functions(module, aliases, names)
    wanted = frozenset(names)
    return Attachments(frozenset(certain) & wanted, frozenset(possible) & wanted, dynamic)


def rebound(module: cst.Module, class_name: str) -> bool:
    """Say whether the module binds the class's name again, as in ``Class = wrap(Class)``."""
    return any(
        isinstance(target, cst.Name) and target.value == class_name
        for statement in statements(module.body)
        for target, _ in targets(statement.node)
    )


def constants_of(body: Sequence[Statement]) -> dict[str, cst.BaseExpression]:
    """Names bound exactly once, on the scope's top floor."""
    found: dict[str, cst.BaseExpression] = {}
    seen: set[str] = set()
    for statement in _walk(body, certain=True, loops={}, constants={}):
        for target, value in targets(statement.node):
            if not isinstance(target, cst.Name) or value is None:
                continue
            if target.value in seen or not statement.certain:
                found.pop(target.value, None)
            else:
                found[target.value] = value
            seen.add(target.value)
    return found


def targets(node: Statement) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression | None]]:
    """Yield each assignment target of a statement with the value it gets."""
    if isinstance(node, cst.Assign):
        for target in node.targets:
            yield target.target, node.value
    elif isinstance(node, cst.AnnAssign) and node.value is not None:
        yield node.target, node.value


def literal_bool(node: cst.BaseExpression, constants: Constants) -> bool | None:
    """Decide a condition that is written as a constant; ``None`` where only running tells."""
    match node:
        case cst.Name(value="True"):
            return True
        case cst.Name(value="False" | "None" | "TYPE_CHECKING"):
            return False
        case cst.Attribute(attr=cst.Name(value="TYPE_CHECKING")):
            return False
        case cst.Name(value=name) if name in constants:
            rest = {key: value for key, value in constants.items() if key != name}
            return literal_bool(constants[name], rest)
        case cst.Integer():
            return node.evaluated_value != 0
        case cst.UnaryOperation(operator=cst.Not(), expression=inner):
            value = literal_bool(inner, constants)
            return None if value is None else not value
        case _:
            return None


def _walk(
    body: Sequence[Statement],
    *,
    certain: bool,
    loops: Mapping[str, tuple[str, ...] | None],
    constants: Constants,
) -> Iterator[ScopeStatement]:
    for node in body:
        if isinstance(node, cst.SimpleStatementLine):
            for small in node.body:
                yield ScopeStatement(small, certain, loops)
            continue
        yield ScopeStatement(node, certain, loops)
        for part, runs, variables in _parts(node, constants):
            yield from _walk(
                part.body,
                certain=certain and runs,
                loops={**loops, **variables},
                constants=constants,
            )


_Part = tuple[cst.BaseSuite, bool, Mapping[str, tuple[str, ...] | None]]


def _parts(node: Statement, constants: Constants) -> Iterator[_Part]:
    """Yield the suites of a compound statement that may run, and whether they surely do."""
    match node:
        case cst.If():
            yield from _if_parts(node, constants)
        case cst.Try() | cst.TryStar():
            yield node.body, False, {}
            yield from ((handler.body, False, {}) for handler in node.handlers)
            yield from ((node.orelse.body, False, {}),) if node.orelse else ()
            yield from ((node.finalbody.body, True, {}),) if node.finalbody else ()
        case cst.With():
            yield node.body, True, {}
        case cst.For():
            variables = _loop_variables(node)
            yield node.body, bool(variables) and all(variables.values()), variables
            yield from ((node.orelse.body, False, {}),) if node.orelse else ()
        case cst.While():
            yield node.body, False, {}
        case cst.Match():
            yield from ((option.body, False, {}) for option in node.cases)
        case _:
            return


def _if_parts(node: cst.If, constants: Constants) -> Iterator[_Part]:
    chosen = literal_bool(node.test, constants)
    if chosen is not False:
        yield node.body, chosen is True, {}
    if chosen is True or node.orelse is None:
        return
    if isinstance(node.orelse, cst.Else):
        yield node.orelse.body, chosen is False, {}
        return
    for part, runs, variables in _if_parts(node.orelse, constants):
        yield part, runs and chosen is False, variables


def _all_compound(body: Sequence[Statement]) -> Iterator[Statement]:
    """Like ``statements``, but into every branch: a dead branch may hold a class as well."""
    for statement in _walk(body, certain=True, loops={}, constants={}):
        yield statement.node


def _loop_variables(node: cst.For) -> dict[str, tuple[str, ...] | None]:
    if not isinstance(node.target, cst.Name):
        return {
            item.value.value: None
            for item in getattr(node.target, "elements", ())
            if isinstance(item.value, cst.Name)
        }
    texts: list[str] = []
    if not isinstance(node.iter, cst.Tuple | cst.List | cst.Set):
        return {node.target.value: None}
    for element in node.iter.elements:
        text = _text(element.value)
        if text is None:
            return {node.target.value: None}
        texts.append(text)
    return {node.target.value: tuple(texts)}


def _learn_alias(node: Statement, aliases: set[str]) -> None:
    for target, value in targets(node):
        if isinstance(target, cst.Name) and isinstance(value, cst.Name) and value.value in aliases:
            aliases.add(target.value)


def _hung_on(
    node: Statement, owners: set[str], loops: Mapping[str, tuple[str, ...] | None]
) -> set[str | None]:
    """Names that a statement sets on one of the owners; ``None`` stands for an unreadable one."""
    found: set[str | None] = set()
    for target, _ in targets(node):
        if isinstance(target, cst.Attribute) and _is_name(target.value, owners):
            found.add(target.attr.value)
    if not isinstance(node, cst.Expr) or not isinstance(node.value, cst.Call):
        return found
    call = node.value
    is_setattr = get_full_name_for_node(call.func) in {"setattr", "type.__setattr__"}
    if not is_setattr or len(call.args) < 2 or not _is_name(call.args[0].value, owners):
        return found
    key = call.args[1].value
    text = _text(key)
    options = loops.get(key.value) if isinstance(key, cst.Name) else None
    if text is not None:
        found.add(text)
    elif options is not None:
        found.update(options)
    else:
        found.add(None)
    return found


def _hung_in_functions(module: cst.Module, owners: set[str], names: Sequence[str]) -> set[str]:
    """Hooks that a function hangs on the class, or on a class that it is given to decorate."""
    found: set[str] = set()
    for statement in statements(module.body):
        if not isinstance(statement.node, cst.FunctionDef):
            continue
        parameters = matchers.findall(statement.node, matchers.Param())
        given = {item.name.value for item in parameters if isinstance(item, cst.Param)}
        for line in matchers.findall(statement.node, matchers.SimpleStatementLine()):
            for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                found |= {
                    hit for hit in _hung_on(small, owners | given, {}) if hit and hit in names
                }
    return found


def _is_name(node: cst.BaseExpression, names: set[str]) -> bool:
    return isinstance(node, cst.Name) and node.value in names


def _text(node: cst.BaseExpression) -> str | None:
    if isinstance(node, cst.SimpleString) and isinstance(node.evaluated_value, str):
        return node.evaluated_value
    return None
