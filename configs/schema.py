"""What a model can hold: its models, the kinds of its unions, and where a kind must be said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def all_models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """A model and every model inside it, each once."""
    found: dict[type[BaseModel], None] = {}

    def visit(each: type[BaseModel]) -> None:
        if each not in found:
            found[each] = None
            for field in each.model_fields.values():
                for inner in models_in(field.annotation):
                    visit(inner)

    visit(model)
    return list(found)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation names, in its order."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    if get_origin(annotation) is not None:
        for inner in get_args(annotation):
            yield from models_in(inner)


def field_model(owner: type[BaseModel] | None, part: str | int) -> type[BaseModel] | None:
    """The model of a field; inside a mapping or list the element's model stays."""
    if owner is None or isinstance(part, int):
        return owner
    field = owner.model_fields.get(part)
    return owner if field is None else next(models_in(field.annotation), None)


def kinds_of(model: type[BaseModel]) -> dict[str, str]:
    """Class name -> kind, of every class inside a model that is told apart by its kind."""
    return {each.__name__: kind for each in all_models(model) if (kind := _kind(each))}


def siblings(name: str, model: type[BaseModel]) -> list[str]:
    """The kinds of the union that holds the class of this name."""
    kinds = kinds_of(model)
    for each in all_models(model):
        for field in each.model_fields.values():
            names = [inner.__name__ for inner in models_in(field.annotation)]
            if name in names and len(names) > 1:
                return [kinds[n] for n in names if n in kinds]
    return [kinds[name]]


def missing_kinds(data: Any, annotation: Any, where: str = "") -> Iterator[tuple[str, list[str]]]:
    """Mappings that leave open which of several classes they are: (path, kinds to choose from)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if isinstance(data, dict):
            for key, field in annotation.model_fields.items():
                if key in data:
                    yield from missing_kinds(data[key], field.annotation, _below(where, key))
        return
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from missing_kinds(data, inner[0], where)
    elif origin is dict and isinstance(data, dict):
        for key, value in data.items():
            yield from missing_kinds(value, inner[1], _below(where, key))
    elif origin in {tuple, list} and isinstance(data, list):
        for index, value in enumerate(data):
            yield from missing_kinds(value, inner[0], _below(where, index))
    elif origin is not None and isinstance(data, dict):
        yield from _of_union(data, annotation, where)


def _of_union(data: dict[str, Any], annotation: Any, where: str) -> Iterator[tuple[str, list[str]]]:
    variants = {kind: each for each in models_in(annotation) if (kind := _kind(each))}
    kind = data.get("kind") or left_out(variants.values())
    if kind is None and len(variants) > 1:
        yield where, list(variants)
    for name, each in variants.items():
        if kind == name or (kind is None and len(variants) == 1):
            yield from missing_kinds(data, each, where)


def left_out(variants: Iterable[type[BaseModel]]) -> str | None:
    """The kind that a mapping without one has: that of the variant which says so, if one does."""
    return next((_kind(each) for each in variants if getattr(each, "without_kind", False)), None)


def unsaid(name: str, model: type[BaseModel]) -> str | None:
    """The kind that is meant where none is said, in the union that holds the class of this name."""
    known = set(siblings(name, model))
    return left_out(each for each in all_models(model) if _kind(each) in known)


def _kind(model: type[BaseModel]) -> str | None:
    """The kind that a class stands for, if it has one of its own."""
    field = model.model_fields.get("kind")
    default = field.default if field is not None else None
    choices = get_args(field.annotation) if field is not None else ()
    return default if isinstance(default, str) and len(choices) == 1 else None


def _below(where: str, key: str | int) -> str:
    return f"{where}.{key}" if where else str(key)
