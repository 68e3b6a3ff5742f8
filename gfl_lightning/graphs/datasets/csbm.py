"""The contextual stochastic block model: a sparse sampler of its graph and of its features."""

from __future__ import annotations

import math

import numpy as np

from gfl_lightning.checks import require, require_count
from gfl_lightning.graphs.arrays import Array, Index

NEVER = 1e-9
"""Expected number of edges below which there are none, as gaps between them would not fit a number."""


def edge_probabilities(num_clients: int, degree: float, lam: float) -> tuple[float, float]:
    """Probability of an edge inside a class and across: (d + λ√d)/N and (d − λ√d)/N."""
    require_count("num_clients", num_clients, 2)
    require(degree > 0, "degree", "be positive", degree)
    require(lam >= 0, "lam", "be at least 0", lam)
    root = math.sqrt(degree)
    require(
        lam <= root,
        "lam",
        f"be at most √degree = {root:.4g}, or edges across classes get a negative probability",
        lam,
    )
    inside, across = (degree + lam * root) / num_clients, (degree - lam * root) / num_clients
    require(
        inside <= 1,
        "degree",
        f"give an edge probability of at most 1 with {num_clients} clients and lam {lam}",
        f"{degree} (probability {inside:.4g})",
    )
    return inside, across


def phi(num_clients: int, num_features: int, lam: float, mu: float) -> float:
    """Share of the information that lies in the graph: φ = (2/π) arctan(λ √(N/p) / μ)."""
    return 2 / math.pi * math.atan2(lam * math.sqrt(num_clients / num_features), mu)


def sample_classes(num_clients: int, rng: np.random.Generator) -> Index:
    """v ∈ {±1}^N in random order, the two classes equal up to one client."""
    return rng.permutation(np.where(np.arange(num_clients) < num_clients // 2, 1, -1))


def sample_edges(v: Index, degree: float, lam: float, rng: np.random.Generator) -> Index:
    """Undirected edges ``[2, edges]``, each pair once (i > j), independent given the classes v.

    Pairs are met in a fixed order and the gaps between chosen ones are geometric, so time and memory grow with
    the edges and not with N². Pairs are proposed with the larger probability and thinned to their own.
    """
    inside, across = edge_probabilities(len(v), degree, lam)
    pair = _bernoulli_positions(len(v) * (len(v) - 1) // 2, inside, rng)
    i, j = _pair(pair)
    keep = rng.random(len(pair)) * inside < np.where(v[i] == v[j], inside, across)
    return np.stack([i[keep], j[keep]])


def sample_direction(num_features: int, rng: np.random.Generator) -> Array:
    """u ~ N(0, I_p / p)."""
    return rng.standard_normal(num_features) / math.sqrt(num_features)


def sample_features(sign: Index, num_clients: int, mu: float, u: Array, rng: np.random.Generator) -> Array:
    """x = sqrt(μ/N) · sign · u + z/√p with z ~ N(0, I_p), one row per entry of ``sign``."""
    noise = rng.standard_normal((len(sign), len(u))) / math.sqrt(len(u))
    return math.sqrt(mu / num_clients) * sign[:, None] * u + noise


def _bernoulli_positions(total: int, probability: float, rng: np.random.Generator) -> Index:
    """Ascending positions of the successes among ``total`` independent trials."""
    positions: list[Index] = []
    last = -1 if total * probability > NEVER else total
    positions.append(np.zeros(0, dtype=np.int64))
    while last < total:
        expected = (total - last) * probability
        gaps = np.minimum(rng.geometric(probability, int(expected + 4 * math.sqrt(expected)) + 8), total + 1)
        positions.append(last + np.cumsum(gaps))
        last = int(positions[-1][-1])
    found = np.concatenate(positions)
    return found[found < total]


def _pair(position: Index) -> tuple[Index, Index]:
    """The pair i > j at a position of the order (1,0), (2,0), (2,1), (3,0), …"""
    i = ((1 + np.sqrt(1 + 8 * position.astype(np.float64))) / 2).astype(np.int64)
    i -= i * (i - 1) // 2 > position
    i += i * (i + 1) // 2 <= position
    return i, position - i * (i - 1) // 2
