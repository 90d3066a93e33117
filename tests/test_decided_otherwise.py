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
    "242-config-random-prompts-for-acceptance": {
        "probe.random_range_ratio": "unknown key",
        "probe.input_len": "unknown key",
    },
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


def test_random_prompts_are_refused_by_name(tmp_path):
    text = (CASES / "242-config-random-prompts-for-acceptance" / "experiment.yaml").read_text()
    for key in ("random_range_ratio: 0.0", "input_len: 1024"):
        text = text.replace(f"  {key}\n", "")
    (tmp_path / "experiment.yaml").write_text(text)
    (problem,) = user_config(tmp_path, {})["problems"]
    assert problem["field"] == "probe.dataset"
    assert "random token prompts say little about acceptance" in problem["reason"]
