"""Whole numbers with the law of a rounded normal number: every cell of the lattice, exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest, norm

from gfl_lightning.privacy.exact_normal import FINENESS, WORD, Uniform, _whole_part, cumulative_word, rounded_normal
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.noise_source import NoiseSource

MANY = 300_000


def source(number: int = 0) -> NoiseSource:
    return NoiseKey.of_seed(7).source("exact", number)


def test_its_law_is_that_of_a_normal_number() -> None:
    """Moments to the sixth, the whole distribution, and the tails that a sampler gets wrong first."""
    z = rounded_normal((MANY,), source()).double() / 2**FINENESS
    for power, expected in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        spread = math.sqrt((math.prod(range(1, 2 * power, 2)) - expected**2) / MANY)
        assert abs(float((z**power).mean()) - expected) < 4.5 * spread
    assert kstest(z.numpy(), "norm").pvalue > 1e-4
    edges = np.array([-np.inf, *np.arange(-3.5, 4.0, 0.25), np.inf])
    found, _ = np.histogram(z.numpy(), np.concatenate([[-99.0], edges[1:-1], [99.0]]))
    expected = MANY * np.diff(norm.cdf(edges))
    assert ((found - expected) ** 2 / expected).sum() < chi2.isf(1e-4, len(expected) - 1)
    assert float(z.abs().max()) > 4


def test_the_last_bits_of_steps_are_uniform() -> None:
    steps = rounded_normal((MANY,), source(1))
    for modulus in (2, 8, 31):
        counts = torch.bincount(steps % modulus, minlength=modulus).double()
        assert float(((counts - MANY / modulus) ** 2 / (MANY / modulus)).sum()) < chi2.isf(1e-4, modulus - 1)


@pytest.mark.parametrize("word", [1, 2, 5, 31])
def test_comparisons_are_exact_however_few_bits_a_word_has(word: int) -> None:
    """With words of a bit every other comparison is undecided after the first: x must keep what decided it.

    A uniform x exceeds each of n new uniform numbers with probability 1/(n + 1), and its own first bits stay its own.
    """
    x, rows = Uniform(MANY, source(2), word), np.arange(MANY)
    first = x.leading(1).copy()
    larger = np.ones(MANY, dtype=bool)
    for n in (1, 2, 3, 4):
        larger &= x.exceed(rows)
        expected = 1 / (n + 1)
        assert abs(larger.mean() - expected) < 4.5 * math.sqrt(expected * (1 - expected) / MANY)
    assert (x.leading(1) == first).all()
    of_upper_half = 31 / 32 * 2 / 5  # P(all four below x, x > 1/2) / P(x > 1/2)
    found = larger[first == 1].mean()
    assert abs(found - of_upper_half) < 4.5 * math.sqrt(of_upper_half * (1 - of_upper_half) / (MANY / 2))


def test_shares_of_whole_parts_are_right_to_every_word() -> None:
    """Digits do not depend on how many decimals they were computed from, and the first ones are a double's."""
    weights = np.exp(-(np.arange(40) ** 2) / 2)
    for k in range(9):
        for level in range(4):
            assert cumulative_word(k, level) == cumulative_word(k, level, 120)
        share = weights[: k + 1].sum() / weights.sum()
        assert abs(cumulative_word(k, 0) / 2**WORD - share) < 2**-30


def test_an_undecided_whole_part_takes_more_words() -> None:
    """Where a uniform number begins like a share, its next words decide."""
    first = cumulative_word(1, 0)
    drawn = source(3)
    below = np.mean([_whole_part(first, drawn) == 1 for _ in range(4_000)])
    expected = cumulative_word(1, 1) / 2**WORD
    assert abs(below - expected) < 4.5 * math.sqrt(expected * (1 - expected) / 4_000)
    assert _whole_part(2**WORD - 1, drawn) >= 6


def test_gaussian_noise_is_whole_steps() -> None:
    for std in (1e-30, 0.37, 3.0, 1e20):
        noise = Gaussian(std, 1.0).draw((1_000,), source(4)) / (std * 2.0**-FINENESS)
        assert torch.allclose(noise, noise.round(), rtol=0, atol=1e-6)
        assert 0.9 < float(noise.std()) / 2**FINENESS < 1.1


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    assert rounded_normal(shape, source(5)).shape == shape
    assert torch.equal(rounded_normal(shape, source(5)), rounded_normal(shape, source(5)))
