"""A model folder is known by what is in it, not by when or by whom it was copied."""

from __future__ import annotations

import os
import shutil

import pytest

from infra.agent.content import BLOCK, digest

SIZE = 20 * BLOCK


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "drafter"
    folder.mkdir()
    (folder / "config.json").write_text('{"a": 1}')
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * (SIZE // 256))
    return folder


def test_a_copy_is_the_same_whatever_its_times(model, tmp_path):
    before = digest(str(model))
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    os.utime(copy / "model.safetensors", (1, 1))
    assert digest(str(copy)) == before
    (copy / "README.md").write_text("about")
    (copy / ".gitattributes").write_text("x")
    assert digest(str(copy)) == before


@pytest.mark.parametrize("at", [0, SIZE // 2, SIZE - 1])
def test_other_weights_of_the_same_size_are_another_model(model, at):
    before = digest(str(model))
    with (model / "model.safetensors").open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" if at % 256 != 255 else b"\x00")
    assert digest(str(model)) != before


def test_any_change_of_a_small_file_counts_and_so_does_a_name(model):
    before = digest(str(model))
    (model / "config.json").write_text('{"a": 2}')
    other = digest(str(model))
    assert other != before
    (model / "config.json").rename(model / "configs.json")
    assert digest(str(model)) not in {before, other}


def test_a_file_alone_and_what_cannot_be_read(model):
    file = str(model / "config.json")
    assert digest(file) == digest(file)
    assert digest(file) != digest(str(model))
    assert digest(str(model / "absent")) is None
