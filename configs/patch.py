"""A patch as data: which methods a class of an installed package lacks, and what they do."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from configs.values import Value
from configs.version import check_range


def _identifier(text: str) -> str:
    if not text.isidentifier():
        raise ValueError(f"{text!r} is not a Python name")
    return text


class Delegate(Value):
    """A method that hands its arguments on to an attribute of ``self``.

    It raises ``AttributeError``, with the class that lacks it, when the attribute is ``None``
    or has no such method: a hook that silently does nothing starts a server that accepts no
    draft token.
    """

    kind: Literal["delegate"] = "delegate"
    name: str
    """Name of the method, here and on the attribute."""
    to: str
    """Attribute of ``self`` that does the work, such as ``language_model``."""
    parameters: tuple[str, ...] = ()
    """Parameters after ``self`` as they stand in a ``def``, such as ``layer_ids=None``."""
    doc: str = ""
    """One line for the method's docstring."""

    _names = field_validator("name", "to")(_identifier)

    @model_validator(mode="after")
    def _parameters_are_python(self) -> Self:
        try:
            ast.parse(self.text())
        except SyntaxError as error:
            raise ValueError(f"parameters or doc of {self.name} do not parse: {error}") from error
        return self

    def text(self) -> str:
        """Return the method as Python, indented by four spaces."""
        head = ", ".join(("self", *self.parameters))
        doc = self.doc or f"Hand on to ``{self.to}``."
        lacking = f'f"{self.to} ({{type(inner).__name__}}) has no {self.name}()"'
        return (
            f"def {self.name}({head}):\n"
            f'    """{doc}"""\n'
            f"    inner = self.{self.to}\n"
            f'    if not hasattr(inner, "{self.name}"):\n'
            f"        raise AttributeError({lacking})\n"
            f"    return inner.{self.name}({_forwarded(head)})\n"
        )


class Body(Value):
    """A method that carries its own text."""

    kind: Literal["body"] = "body"
    name: str
    """Name of the method."""
    source: str
    """The whole ``def``, decorators included, starting in column 0."""

    _names = field_validator("name")(_identifier)

    @model_validator(mode="after")
    def _is_one_method(self) -> Self:
        try:
            found = ast.parse(self.source).body
        except SyntaxError as error:
            raise ValueError(f"source of {self.name} is not valid Python: {error}") from error
        if len(found) != 1 or not isinstance(found[0], ast.FunctionDef):
            raise ValueError(f"source of {self.name} must be exactly one plain def")
        if found[0].name != self.name:
            raise ValueError(f"source defines {found[0].name}, not {self.name}")
        return self

    def text(self) -> str:
        """Return the method as Python, as it was written."""
        return self.source.rstrip() + "\n"


class Patch(Value):
    """Methods to add to one class of one file of an installed package."""

    name: str
    """Name of the patch; it stands in the comment that marks inserted code."""
    package: str = "sglang"
    """Import name of the package that holds the file."""
    module: str
    """The file, relative to the package's folder, such as ``srt/models/kimi_k25.py``."""
    class_name: str
    """The class that lacks the methods."""
    methods: tuple[Delegate | Body, ...] = Field(min_length=1)
    """What to add, in this order."""
    after: str | None = None
    """Method of the class to add behind; the end of the class where it has none such."""
    versions: str
    """Releases of the package that lack the methods, such as ``>=0.5.9,<0.5.10``."""
    below: str
    """What is said where the file or class is not there, as in releases below the range."""
    upstream: str
    """The upstream change that makes the patch unnecessary."""
    note: str = ""
    """Why the patch exists, for the record."""

    _class_is_a_name = field_validator("class_name")(_identifier)
    _versions_are_a_range = field_validator("versions")(check_range)

    @field_validator("name")
    @classmethod
    def _name_fits_a_comment(cls, name: str) -> str:
        if not name.replace("-", "_").isidentifier() or not name.isascii():
            raise ValueError(f"{name!r} may hold letters, digits, '-' and '_' only")
        return name

    @field_validator("package")
    @classmethod
    def _package_is_dotted(cls, package: str) -> str:
        for part in package.split("."):
            _identifier(part)
        return package

    @field_validator("module")
    @classmethod
    def _module_stays_inside(cls, module: str) -> str:
        path = PurePosixPath(module)
        if path.is_absolute() or ".." in path.parts or path.suffix != ".py" or "\\" in module:
            raise ValueError(f"{module!r} is not a .py file inside the package")
        return module

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        if len(set(self.method_names)) != len(self.methods):
            raise ValueError(f"a method is named twice in patch {self.name}")
        return self

    @property
    def method_names(self) -> tuple[str, ...]:
        """The methods that the class must have afterwards."""
        return tuple(method.name for method in self.methods)


def _forwarded(head: str) -> str:
    """Return the call arguments that pass every parameter of ``head`` but ``self`` on."""
    try:
        tree = ast.parse(f"def f({head}): ...").body[0]
    except SyntaxError:
        return ""  # the validator parses the whole method and reports it
    if not isinstance(tree, ast.FunctionDef):
        return ""
    found = tree.args
    parts = [argument.arg for argument in (*found.posonlyargs, *found.args)][1:]
    parts += [f"*{found.vararg.arg}"] if found.vararg else []
    parts += [f"{argument.arg}={argument.arg}" for argument in found.kwonlyargs]
    parts += [f"**{found.kwarg.arg}"] if found.kwarg else []
    return ", ".join(parts)
