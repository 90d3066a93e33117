"""Where the file of a sweep, host or patch is, by its name or by its path."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from configs.problems import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

SHIPPED = Path(__file__).parent
_SUFFIXES = (".yaml", ".yml", ".example")


def find(room: str, name: str) -> Path:
    """The file of a sweep, host or patch by its name, or by its path.

    Names are looked up in ./configs/<room>/ first, then among the shipped files, so that an
    installed package can be used from any folder.

    Raises:
        ConfigError: No such file; names those that there are.
    """
    if "/" in name or name.endswith(_SUFFIXES):
        return _at(name)
    folders = [Path("configs") / room, SHIPPED / room]
    for folder in folders:
        path = folder / f"{name}.yaml"
        if path.is_file():
            return path
    raise ConfigError([Problem(f"configs/{room}/{name}.yaml", "", _advice(room, name, folders))])


def stem(path: Path) -> str:
    """A file's name without its endings: box.yaml.example -> box, kimi-k2.5.yaml -> kimi-k2.5."""
    text = path.name.removesuffix(".example")
    for suffix in (".yaml", ".yml"):
        text = text.removesuffix(suffix)
    return text


def every_file(room: str) -> Iterator[Path]:
    """All shipped files of a room, for the test that reads and plans each of them."""
    yield from sorted((SHIPPED / room).glob("*.yaml*"))


def _at(name: str) -> Path:
    try:
        path = Path(name).expanduser()
    except RuntimeError as error:
        raise ConfigError([Problem(name, "", f"no such file: {error}")]) from error
    if path.is_file():
        return path
    if path.is_dir():
        raise ConfigError([Problem(name, "", "is a folder: name a file in it")])
    there = sorted(p.name for p in path.parent.glob("*.y*ml*")) if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, there, n=1)
    hint = f": did you mean {path.parent / close[0]}?" if close else ""
    raise ConfigError([Problem(name, "", f"no such file{hint}")])


def _advice(room: str, name: str, folders: list[Path]) -> str:
    example = next((f for d in folders if (f := d / f"{name}.yaml.example").is_file()), None)
    if example is not None:
        return f"no such file: copy {example} to configs/{room}/{name}.yaml and fill it in"
    there = sorted({stem(path) for folder in folders for path in folder.glob("*.yaml")})
    close = difflib.get_close_matches(name, there, n=1)
    known = f"there are: {', '.join(there) or 'none'}"
    return f"no such file: did you mean {close[0]}?" if close else f"no such file: {known}"
