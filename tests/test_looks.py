"""The price of looking is Pocock's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from tasks.looks import confidence_of_look


# Jennison & Turnbull, Group Sequential Methods (2000), table 2.1: constants C_P(K, alpha).
@pytest.mark.parametrize(
    ("looks", "confidence", "constant"),
    [
        (2, 0.95, 2.178),
        (3, 0.95, 2.289),
        (5, 0.95, 2.413),
        (8, 0.95, 2.512),
        (12, 0.95, 2.588),
        (2, 0.90, 1.875),
        (5, 0.90, 2.122),
        (5, 0.99, 2.986),
    ],
)
def test_the_constants_are_the_published_ones(looks, confidence, constant):
    level = confidence_of_look(looks, confidence)
    assert special.ndtri((1 + level) / 2) == pytest.approx(constant, abs=0.002)


def test_one_look_is_free():
    assert confidence_of_look(1) == 0.95


def test_a_night_that_stops_at_whatever_look_pleases_keeps_its_error_rate():
    draw = np.random.default_rng(7)
    sums = np.cumsum(draw.normal(size=(40_000, 6)), axis=1) / np.sqrt(np.arange(1, 7))
    bound = special.ndtri((1 + confidence_of_look(6)) / 2)
    assert np.mean((np.abs(sums) > bound).any(axis=1)) == pytest.approx(0.05, abs=0.004)


@pytest.mark.parametrize(("looks", "confidence"), [(0, 0.95), (101, 0.95), (3, 0.0), (3, 1.0)])
def test_impossible_arguments_are_refused(looks, confidence):
    with pytest.raises(ValueError, match="looks 1 to 100"):
        confidence_of_look(looks, confidence)
