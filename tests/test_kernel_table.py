"""Kernels as real serving runs name them are put where they belong; see fixtures/kernel_names.tsv."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.kernel_table import CATEGORIES, KERNELS, MEANINGS, TITLES, category_of

NAMES = [
    line.split("\t")
    for line in (Path(__file__).parent / "fixtures" / "kernel_names.tsv").read_text().splitlines()
]


@pytest.mark.parametrize(("category", "name"), NAMES, ids=lambda text: text[:40])
def test_a_kernel_is_what_it_is_for(category, name):
    assert category_of("kernel", name) == category


def test_copies_are_known_by_their_kind():
    assert category_of("gpu_memcpy", "Memcpy PtoP (Device -> Device)") == "memory"
    assert category_of("gpu_memset", "Memset (Device)") == "memory"


def test_a_name_that_says_nothing_is_other():
    assert category_of("kernel", "void foo<3>(int)") == "other"


def test_every_line_of_the_table_is_used_by_a_real_name():
    used = {category for category, _ in NAMES}
    assert used == set(CATEGORIES) - {"other"}
    assert all(kernel.example for kernel in KERNELS)
    assert set(TITLES) == set(MEANINGS) == set(CATEGORIES)
