"""What a host says about a file, in the words of its own programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.agent_answers import says_full
from infra.errors import FileRefused
from infra.remote_file import check_done, reading, writing
from infra.shell import LocalShell


def test_a_full_disk_is_named_as_such():
    said = LocalShell().run(["sh", "-c", "echo much | LC_ALL=C cat >/dev/full"])
    with pytest.raises(FileRefused, match="/x could not be written: no space") as caught:
        check_done(said, "/x", "written")
    assert says_full(str(caught.value))


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(FileRefused, match="could not be read: is a directory"):
        check_done(LocalShell().run(reading(str(tmp_path))), str(tmp_path), "read")
    said = LocalShell().run(writing(str(tmp_path), 0, 0o600))
    with pytest.raises(FileRefused, match="could not be written: is a folder"):
        check_done(said, str(tmp_path), "written")
    assert not [*tmp_path.iterdir()]


def test_what_arrives_in_part_is_not_kept(tmp_path):
    path = tmp_path / "state.json"
    path.write_text("old")
    said = LocalShell().run(writing(str(path), 100, 0o600))  # a cut line ends stdin early
    with pytest.raises(FileRefused, match="did not arrive whole"):
        check_done(said, str(path), "written")
    assert [found.name for found in tmp_path.iterdir()] == ["state.json"]
    assert path.read_text() == "old"


def test_a_name_that_looks_like_an_option_is_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_done(LocalShell().run(writing("-n", 0, 0o640)), "-n", "written")
    assert Path("-n").stat().st_mode & 0o777 == 0o640
    assert LocalShell().run(reading("-n")) == (0, "", "")
