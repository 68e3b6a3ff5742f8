"""Exact Gaussian accounting against the definition of δ, known values and its own inverse."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from gfl_lightning.checks import InputError
from gfl_lightning.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu


@pytest.mark.parametrize(("epsilon", "mu"), [(0.0, 0.5), (1.0, 0.5), (1.0, 2.0), (5.0, 2.0)])
def test_delta_is_the_hockey_stick_divergence_of_two_gaussians(epsilon: float, mu: float) -> None:
    """δ(ε) = ∫ max(0, p − e^ε q) for p = N(μ, 1), q = N(0, 1): the definition, integrated."""

    def excess(x: float) -> float:
        return max(0.0, norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x))

    crossing = epsilon / mu + mu / 2
    assert gaussian_delta(epsilon, mu) == pytest.approx(quad(excess, crossing, crossing + 30)[0], rel=1e-6)


@pytest.mark.parametrize(("z", "steps", "epsilon"), [(1.0, 100, 91.82), (5.0, 400, 24.38)])
def test_known_values(z: float, steps: int, epsilon: float) -> None:
    assert gaussian_epsilon(math.sqrt(steps) / z, 1e-5) == pytest.approx(epsilon, abs=0.005)


@given(st.floats(1e-3, 200), st.floats(1e-9, 0.1))
def test_epsilon_is_the_smallest_that_delta_allows(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(epsilon, mu) <= delta * (1 + 1e-6)
    if epsilon > 1e-6:
        assert gaussian_delta(epsilon * (1 - 1e-6), mu) > delta * (1 - 1e-6)


@given(st.floats(0.05, 500), st.floats(1e-9, 0.1))
def test_mu_undoes_epsilon_and_never_overspends(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_epsilon(mu, delta) <= epsilon * (1 + 1e-8)
    assert gaussian_epsilon(mu * 1.001, delta) > epsilon


def test_limits() -> None:
    assert gaussian_epsilon(0.0, 1e-5) == 0
    assert gaussian_epsilon(1e-9, 1e-5) == 0
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf
    assert math.isfinite(gaussian_epsilon(1e4, 1e-5))


def test_more_noise_spends_less() -> None:
    found = [gaussian_epsilon(10 / z, 1e-5) for z in np.linspace(0.5, 20, 30)]
    assert all(a > b for a, b in pairwise(found))


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_delta_must_be_a_probability(delta: float) -> None:
    with pytest.raises(InputError, match=r"delta must lie in \(0, 1\), got"):
        gaussian_epsilon(1.0, delta)


def test_epsilon_must_be_positive() -> None:
    with pytest.raises(InputError, match="epsilon must be positive and finite, got 0"):
        gaussian_mu(0, 1e-5)
