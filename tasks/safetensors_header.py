"""The table of contents of a safetensors file: which tensors it holds, without loading them."""

from __future__ import annotations

import json
import struct
from math import prod
from typing import Final, NamedTuple

# The format's own limit, https://huggingface.co/docs/safetensors: a larger number is no header.
_LONGEST: Final = 100_000_000
_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64,
}  # fmt: skip
_INTEGERS: Final = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "U16": "H"}


class NotSafetensorsError(ValueError):
    """The bytes are not the beginning of a safetensors file, or the file is cut off."""


class Tensor(NamedTuple):
    """One tensor as the header describes it."""

    dtype: str
    """Element type in the format's spelling, such as ``BF16``."""
    shape: tuple[int, ...]
    """Size of each dimension."""
    start: int = 0
    """Offset of its first byte in the file."""
    end: int = 0
    """Offset behind its last byte in the file."""


def header_bytes(first_eight: bytes) -> int:
    """Say how many bytes of a file, from its beginning, hold the whole header.

    Raises:
        NotSafetensorsError: the length in front is missing or absurd.
    """
    if len(first_eight) < 8:
        raise NotSafetensorsError(f"{len(first_eight)} bytes are too few for a safetensors file")
    length = int(struct.unpack("<Q", first_eight[:8])[0])
    if not 2 <= length <= _LONGEST:
        raise NotSafetensorsError(f"a header of {length} bytes: this is no safetensors file")
    return 8 + length


def read_header(data: bytes, file_bytes: int | None = None) -> dict[str, Tensor]:
    """Read the tensors' names, types and shapes from the first bytes of a file.

    Args:
        data: the file's beginning, the whole header at least (``header_bytes``).
        file_bytes: size of the whole file, to find one that was cut off while copying.

    Raises:
        NotSafetensorsError: it is none, or it is shorter than its header says.
    """
    begin = header_bytes(data)
    if len(data) < begin:
        raise NotSafetensorsError(f"the header needs {begin} bytes, there are {len(data)}")
    try:
        table = json.loads(data[8:begin].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise NotSafetensorsError(f"the header is not JSON: {error}") from error
    if not isinstance(table, dict):
        raise NotSafetensorsError("the header is not a JSON object")
    tensors = {
        name: _tensor(name, entry, begin) for name, entry in table.items() if name != "__metadata__"
    }
    needed = max((tensor.end for tensor in tensors.values()), default=begin)
    if file_bytes is not None and file_bytes < needed:
        raise NotSafetensorsError(f"the file has {file_bytes} bytes of {needed}: it is cut off")
    return tensors


def read_index(data: bytes) -> tuple[str, ...]:
    """Name the files of a checkpoint in parts, from its ``model.safetensors.index.json``.

    Raises:
        NotSafetensorsError: it is not such an index.
    """
    try:
        table = json.loads(data.decode("utf-8-sig"))["weight_map"]
        return tuple(sorted({str(file) for file in table.values()}))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise NotSafetensorsError(f"not an index of safetensors files: {error!r}") from error


def integers(tensor: Tensor, raw: bytes) -> tuple[int, ...]:
    """Return the values of a tensor of integers from its own bytes.

    Raises:
        NotSafetensorsError: it holds no integers, or the bytes are not all of it.
    """
    code = _INTEGERS.get(tensor.dtype)
    if code is None:
        raise NotSafetensorsError(f"a tensor of {tensor.dtype} holds no integers")
    count = prod(tensor.shape)
    if len(raw) != count * struct.calcsize(f"<{code}"):
        raise NotSafetensorsError(f"{len(raw)} bytes are not {count} values of {tensor.dtype}")
    return struct.unpack(f"<{count}{code}", raw)


def truths(tensor: Tensor, raw: bytes) -> tuple[bool, ...]:
    """Return the values of a tensor of truth values, or of small integers, from its own bytes.

    Raises:
        NotSafetensorsError: it is of another type, or the bytes are not all of it.
    """
    if tensor.dtype != "BOOL":
        return tuple(value != 0 for value in integers(tensor, raw))
    if len(raw) != prod(tensor.shape):
        raise NotSafetensorsError(f"{len(raw)} bytes are not {prod(tensor.shape)} truth values")
    return tuple(byte != 0 for byte in raw)


def _tensor(name: str, entry: object, begin: int) -> Tensor:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(start), int(end)]}:
            pass
        case _:
            raise NotSafetensorsError(f"the header's entry for {name} is not one: {entry!r}"[:200])
    if not all(type(size) is int and size >= 0 for size in shape) or not 0 <= start <= end:
        raise NotSafetensorsError(f"the header's entry for {name} has impossible sizes")
    bits = _BITS.get(dtype)
    if bits is not None and prod(shape) * bits != (end - start) * 8:
        raise NotSafetensorsError(f"{name}: {dtype} {shape} does not fill {end - start} bytes")
    return Tensor(dtype, tuple(shape), begin + start, begin + end)
