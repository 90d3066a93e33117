"""docs/security.md names where each promise is held and what proves it: all of that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = [
    line
    for line in (ROOT / "docs" / "security.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| promise")
]
TEST = re.compile(r"`(tests/\w+\.py)::(test_\w+)`")
PLACE = re.compile(r"`((?:configs|flows|infra|tasks)/[\w/]+\.py|requirements\.lock|Makefile)`")


@pytest.mark.parametrize("row", ROWS)
def test_every_promise_has_a_place_and_a_test_that_exist(row):
    _, promise, place, proof, _ = re.split(r"(?<!\\)\|", row)
    assert promise.strip()
    assert place.strip() == "the same" or PLACE.findall(place)
    assert all((ROOT / path).is_file() for path in PLACE.findall(place))
    named = TEST.findall(proof)
    assert named
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_setup_installs_by_hash():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--require-hashes -r requirements.lock" in makefile
    assert "--no-deps -e ." in makefile
