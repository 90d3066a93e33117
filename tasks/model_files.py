"""What a model folder says of itself: its config and the headers of its weights, wherever it is."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from tasks.safetensors_header import (
    NotSafetensorsError,
    Tensor,
    header_bytes,
    integers,
    read_header,
    read_index,
    truths,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

CONFIG: Final = "config.json"
INDEX: Final = "model.safetensors.index.json"
_FIRST_BYTES: Final = 65_536  # holds a drafter's whole header (some kilobytes): one trip, not two
# What SGLang's loader looks for where there are no safetensors (0.5.12 loader.py).
_OTHER_WEIGHTS: Final = (".bin", ".pt")


class Files(Protocol):
    """Folders of models, on this machine or on a host."""

    def get(self, path: str, /) -> bytes:
        """A whole small file.

        Raises:
            FileNotFoundError: There is none.
        """

    def head(self, path: str, count: int, offset: int = 0, /) -> tuple[bytes, int] | None:
        """The first bytes of a file (from an offset) and its size; None where there is none."""

    def folder(self, path: str, /) -> tuple[dict[str, int], str | None] | None:
        """A folder's files with their sizes, and its identity; None where there is none."""


class Checkpoint(NamedTuple):
    """A model folder as far as it is read: no weights but the token maps."""

    config: bytes | None = None
    """Bytes of config.json; None where there is none."""
    headers: dict[str, Tensor] | None = None
    """Tensors by name; None where the weights are in another format, or there are none."""
    d2t: tuple[int, ...] | None = None
    """Offsets from draft ids to target ids."""
    t2d: tuple[bool, ...] | None = None
    """Which target ids the drafter knows."""
    has_weights: bool = True
    """Whether there is any file of weights at all."""
    missing: tuple[str, ...] = ()
    """Files that the index names and the folder lacks."""
    identity: str | None = None
    """Digest of names, sizes and samples of the files (infra/agent/content); None if unreadable."""


def read_checkpoint(files: Files, path: str) -> Checkpoint | None:
    """Reads a drafter's folder as SGLang's loader would; None where there is no such folder.

    Raises:
        NotSafetensorsError: a weight file is none, or is cut off.
    """
    found = files.folder(path)
    if found is None:
        return None
    sizes, identity = found
    config = optional(files, posixpath.join(path, CONFIG))
    names, missing = _weight_files(files, path, sizes)
    if not names:
        others = any(name.endswith(_OTHER_WEIGHTS) for name in sizes)
        return Checkpoint(config, has_weights=others, missing=missing, identity=identity)
    headers: dict[str, Tensor] = {}
    maps: dict[str, tuple[str, Tensor]] = {}
    for name in names:
        file = posixpath.join(path, name)
        tensors = _header(files, file)
        headers |= tensors
        maps |= {key: (file, tensors[key]) for key in ("d2t", "t2d") if key in tensors}
    return Checkpoint(
        config=config,
        headers=headers,
        d2t=_values(files, maps.get("d2t"), integers),
        t2d=_values(files, maps.get("t2d"), truths),
        missing=missing,
        identity=identity,
    )


def optional(files: Files, path: str) -> bytes | None:
    """A small file, or None where there is none."""
    try:
        return files.get(path)
    except FileNotFoundError:
        return None


def _weight_files(
    files: Files, path: str, sizes: Mapping[str, int]
) -> tuple[list[str], tuple[str, ...]]:
    """The safetensors files that are loaded, and those that the index names in vain."""
    there = sorted(name for name in sizes if name.endswith(".safetensors"))
    if INDEX not in sizes:
        return there, ()
    named = read_index(files.get(posixpath.join(path, INDEX)))
    return [n for n in there if n in named], tuple(n for n in named if n not in sizes)


def _header(files: Files, file: str) -> dict[str, Tensor]:
    first = files.head(file, _FIRST_BYTES)
    if first is None:
        raise NotSafetensorsError(f"{posixpath.basename(file)} went away while it was read")
    length = header_bytes(first[0])
    whole = first if length <= _FIRST_BYTES else files.head(file, length)
    return read_header(*(whole or first))


def _values(
    files: Files,
    place: tuple[str, Tensor] | None,
    read: Callable[[Tensor, bytes], tuple[T, ...]],
) -> tuple[T, ...] | None:
    """A small tensor's values; None where there is none."""
    if place is None:
        return None
    file, tensor = place
    raw = files.head(file, tensor.end - tensor.start, tensor.start)
    return None if raw is None else read(tensor, raw[0])
