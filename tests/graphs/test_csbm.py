"""The cSBM sampler against its definition: densities, moments, and the order of pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.datasets.csbm import (
    _bernoulli_positions,
    _pair,
    edge_probabilities,
    phi,
    sample_classes,
    sample_direction,
    sample_edges,
    sample_features,
)


@given(st.integers(0, 10**18))
def test_pair_is_the_inverse_of_the_position(position: int) -> None:
    i, j = (int(value[0]) for value in _pair(np.array([position])))
    assert 0 <= j < i
    assert i * (i - 1) // 2 + j == position


def test_geometric_gaps_are_independent_trials() -> None:
    rng = np.random.default_rng(0)
    runs = [_bernoulli_positions(50, 0.3, rng) for _ in range(4000)]
    hit = np.zeros((4000, 50))
    for row, positions in zip(hit, runs, strict=True):
        assert len(np.unique(positions)) == len(positions)
        row[positions] = 1
    sigma = math.sqrt(0.3 * 0.7 / 4000)
    assert np.abs(hit.mean(0) - 0.3).max() < 5 * sigma
    off_diagonal = np.corrcoef(hit.T) - np.eye(50)
    assert np.abs(off_diagonal).max() < 5.5 / math.sqrt(4000)


@pytest.mark.parametrize(("degree", "lam"), [(8, 2.0), (5, 2.2), (25, 0.0), (4, 2.0)])
def test_edge_densities(degree: float, lam: float) -> None:
    N, seeds = 80, 200
    inside, across = edge_probabilities(N, degree, lam)
    same = cross = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        v = sample_classes(N, rng)
        assert abs(v.sum()) <= 1
        i, j = sample_edges(v, degree, lam, rng)
        assert len(set(zip(i.tolist(), j.tolist(), strict=True))) == len(i)
        assert (i > j).all()
        same += int((v[i] == v[j]).sum())
        cross += int((v[i] != v[j]).sum())
    for found, pairs, probability in ((same, 2 * math.comb(N // 2, 2), inside), (cross, (N // 2) ** 2, across)):
        sigma = math.sqrt(seeds * pairs * probability * (1 - probability))
        assert abs(found - seeds * pairs * probability) <= 5 * sigma


def test_feature_moments() -> None:
    rng = np.random.default_rng(1)
    N, p, mu, rows = 200, 100, 1.0, 20_000
    u = sample_direction(p, rng)
    sign = np.where(np.arange(rows) % 3 == 0, -1, 1)
    x = sample_features(sign, N, mu, u, rng)
    noise = x - math.sqrt(mu / N) * sign[:, None] * u
    assert np.abs(noise.mean(0)).max() < 5 / math.sqrt(p * rows)
    assert noise.var() == pytest.approx(1 / p, rel=0.01)
    assert np.abs(np.cov(noise.T) * p - np.eye(p)).max() < 6 * math.sqrt(2 / rows)
    directions = np.stack([sample_direction(p, rng) for _ in range(2000)])
    assert (directions**2).sum(1).mean() == pytest.approx(1, abs=5 * math.sqrt(2 / p / 2000))


def test_phi_of_the_papers_sets() -> None:
    assert phi(200, 100, 2, 1) == pytest.approx(2 / math.pi * math.atan(2 * math.sqrt(2)))
    assert phi(200, 100, 0, 1) == 0
    assert phi(200, 100, 1, 0) == pytest.approx(1)


@pytest.mark.parametrize(
    ("N", "degree", "lam", "sentence"),
    [
        (1, 1.0, 0.0, "num_clients must be at least 2, got 1"),
        (50, 0.0, 0.0, "degree must be positive, got 0.0"),
        (50, 5.0, -1.0, "lam must be at least 0, got -1.0"),
        (50, 4.0, 2.1, "lam must be at most √degree = 2, or edges across classes get a negative probability, got 2.1"),
        (50, 49.0, 2.0, r"degree must give an edge probability of at most 1 .*, got '49.0 \(probability 1.26\)'"),
    ],
)
def test_refusals(N: int, degree: float, lam: float, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        edge_probabilities(N, degree, lam)
