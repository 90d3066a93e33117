"""Every committed case has the outcome that it expects, and the runner survives strange folders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cases import COMMITTED, case_folders, main, run_case

if TYPE_CHECKING:
    from pathlib import Path


MORE = COMMITTED.parent / "more_cases"


@pytest.mark.parametrize(
    "folder", [*case_folders(COMMITTED), *case_folders(MORE)], ids=lambda folder: folder.name
)
def test_case(folder):
    outcome = run_case(folder)
    assert outcome.status == "ok", outcome.line()


def write_case(root: Path, name: str, expected: dict[str, object]) -> None:
    (root / name).mkdir()
    (root / name / "expect.json").write_text(json.dumps(expected), encoding="utf-8")


def test_an_unknown_kind_is_an_error_line(tmp_path, capsys):
    write_case(tmp_path, "900-new-thing", {"kind": "moon-phase", "ok": True})
    assert main(["--cases", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("error 900-new-thing: ")
    assert "moon-phase" in lines[0]
    assert lines[-1] == "0 passed, 1 failed"


def test_a_folder_without_expectation_and_a_broken_one_are_error_lines(tmp_path, capsys):
    (tmp_path / "901-empty").mkdir()
    (tmp_path / "902-broken").mkdir()
    (tmp_path / "902-broken" / "expect.json").write_text("{", encoding="utf-8")
    (tmp_path / "README.md").write_text("not a case", encoding="utf-8")
    assert main(["--cases", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["error 901-empty", "error 902-broken"]
    assert lines[-1] == "0 passed, 2 failed"


def test_a_missing_input_file_is_an_error_line_of_that_case(tmp_path):
    write_case(tmp_path, "903-health-nothing", {"kind": "health-probe", "state": "ready"})
    assert run_case(tmp_path / "903-health-nothing").status == "error"


def test_one_kind_can_be_run_alone(tmp_path, capsys):
    write_case(tmp_path, "904-a", {"kind": "one"})
    write_case(tmp_path, "905-b", {"kind": "two"})
    main(["--cases", str(tmp_path), "--kind", "two"])
    out = capsys.readouterr().out
    assert "905-b" in out
    assert "904-a" not in out


def test_nothing_to_run_counts_nothing(tmp_path, capsys):
    assert main(["--cases", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 0 failed"
