"""Reading what a safetensors file holds, without loading it."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.safetensors_header import (
    NotSafetensorsError,
    Tensor,
    header_bytes,
    integers,
    read_header,
    read_index,
)


def safetensors(table: object, body: bytes = b"") -> bytes:
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text + body


TABLE = {
    "__metadata__": {"format": "pt"},
    "d2t": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]},
    "fc.weight": {"dtype": "BF16", "shape": [2, 6], "data_offsets": [24, 48]},
}


def test_names_types_shapes_and_places_come_from_the_header_alone():
    body = struct.pack("<3q", 0, -1, 2**40) + bytes(24)
    whole = safetensors(TABLE, body)
    begin = header_bytes(whole[:8])
    tensors = read_header(whole[:begin], file_bytes=len(whole))
    assert tensors["fc.weight"] == Tensor("BF16", (2, 6), begin + 24, begin + 48)
    d2t = tensors["d2t"]
    assert integers(d2t, whole[d2t.start : d2t.end]) == (0, -1, 2**40)


def test_a_file_that_was_cut_off_is_noticed():
    whole = safetensors(TABLE, bytes(48))
    with pytest.raises(NotSafetensorsError, match="cut off"):
        read_header(whole, file_bytes=len(whole) - 1)
    with pytest.raises(NotSafetensorsError, match="header needs"):
        read_header(whole[:20])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version https://git-lfs.github.com/spec/v1",
        struct.pack("<Q", 10) + b"0123456789",
        struct.pack("<Q", 2) + b"[]",
        safetensors({"x": 1}),
        safetensors({"x": {"dtype": "I64", "shape": [-1], "data_offsets": [0, 8]}}),
        safetensors({"x": {"dtype": "I64", "shape": [1], "data_offsets": [8, 0]}}),
        safetensors({"x": {"dtype": "I64", "shape": [2], "data_offsets": [0, 8]}}),
        safetensors({"x": {"dtype": "I64", "shape": ["1"], "data_offsets": [0, 8]}}),
    ],
)
def test_anything_else_is_refused_with_a_reason(data):
    with pytest.raises(NotSafetensorsError, match=r"\w+ \w+"):
        read_header(data)


def test_an_element_type_of_the_future_is_taken_as_it_is():
    table = {"x": {"dtype": "F2", "shape": [8], "data_offsets": [0, 2]}}
    assert read_header(safetensors(table))["x"].dtype == "F2"


def test_values_are_read_only_where_they_are_integers_and_complete():
    for tensor, raw in ((Tensor("BF16", (2,)), bytes(4)), (Tensor("I64", (2,)), bytes(15))):
        with pytest.raises(NotSafetensorsError):
            integers(tensor, raw)
    assert integers(Tensor("I32", ()), b"\x07\0\0\0") == (7,)


def test_the_parts_of_a_checkpoint_are_named_once_each():
    index = {"weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"}}
    assert read_index(json.dumps(index).encode()) == ("m-1.safetensors", "m-2.safetensors")
    for bad in (b"", b"[]", b"{}", b'{"weight_map": 1}', b"\xff"):
        with pytest.raises(NotSafetensorsError):
            read_index(bad)


@given(st.binary(max_size=80))
def test_no_bytes_make_the_reader_itself_fail(data):
    try:
        assert isinstance(read_header(data), dict)
    except NotSafetensorsError as error:
        assert str(error)  # noqa: PT017
