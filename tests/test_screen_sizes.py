"""Messages have the sizes that the sweep's own decode steps make."""

from __future__ import annotations

import pytest

from configs.read import read_sweep
from tasks.screen_sizes import SizesUnknownError, decode_sizes, size_words, spread


@pytest.fixture(scope="module")
def sweep():
    return read_sweep("rehearsal")


def test_rows_are_users_times_what_is_looked_at_for_each(sweep):
    sizes = decode_sizes(sweep, {"hidden_size": 7168, "torch_dtype": "bfloat16"})
    # 1, 8 and 64 users; one token each without speculation, two, or four to verify.
    assert sizes.rows == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert sizes.bytes[0] == 7168 * 2
    assert sizes.elements[-1] == 256 * 7168


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"hidden_size": 8, "dtype": "float16"}, "float16"),
        ({"hidden_size": 8, "torch_dtype": "torch.bfloat16"}, "bfloat16"),
        ({"hidden_size": 8, "torch_dtype": "float32"}, "float16"),
        ({"hidden_size": 8}, "bfloat16"),
        ({"text_config": {"hidden_size": 8, "dtype": "float16"}}, "float16"),
        ({"text_config": {"hidden_size": 8}, "torch_dtype": "float16"}, "float16"),
        ({"hidden_size": 8, "torch_dtype": "float8_e4m3fn"}, "bfloat16"),
    ],
)
def test_the_type_of_the_activations(sweep, config, dtype):
    assert decode_sizes(sweep, config).dtype == dtype


def test_a_flag_decides_before_the_model(sweep):
    engine = sweep.engine.model_copy(update={"flags": {**sweep.engine.flags, "dtype": "half"}})
    asked = sweep.model_copy(update={"engine": engine})
    assert decode_sizes(asked, {"hidden_size": 8, "dtype": "bfloat16"}).dtype == "float16"


def test_a_model_of_unknown_width_is_refused(sweep):
    with pytest.raises(SizesUnknownError, match="hidden_size"):
        decode_sizes(sweep, {"architectures": ["X"]})


def test_many_sizes_are_thinned_and_keep_their_ends():
    kept = spread(range(1, 40), 10)
    assert (len(kept), kept[0], kept[-1]) == (10, 1, 39)
    assert spread([3, 4], 10) == (3, 4)


def test_sizes_in_words():
    assert [size_words(n) for n in (512, 14336, 8 << 20)] == ["512 B", "14 KiB", "8 MiB"]
