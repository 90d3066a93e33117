"""Where a recorded case is answered otherwise, the answer is the one that the page gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case_user_config import user_config
from tests.cases import case_folders

ROOT = Path(__file__).parent
CASES = ROOT / "fixtures" / "decided-otherwise"
PAGE = ROOT.parent / "docs" / "decided-otherwise.md"

ANSWERS = {
    "247-config-secret-in-env": {"env.HF_TOKEN": "under env_from"},
}


@pytest.mark.parametrize("folder", case_folders(CASES), ids=lambda folder: folder.name)
def test_the_answer_is_the_one_on_the_page(folder):
    assert folder.name in PAGE.read_text(encoding="utf-8")
    outcome = user_config(folder, {"gpus_on_host": 8})
    assert not outcome["ok"]
    said = {problem["field"]: problem["reason"] for problem in outcome["problems"]}
    assert said.keys() == ANSWERS[folder.name].keys()
    for field, words in ANSWERS[folder.name].items():
        assert words in said[field]


def test_a_secret_is_not_repeated_in_the_refusal():
    outcome = user_config(CASES / "247-config-secret-in-env", {})
    assert "not-a-real-token-0000" not in str([p["reason"] for p in outcome["problems"]])
