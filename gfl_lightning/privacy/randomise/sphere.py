"""Records on the unit sphere, after a public random projection where fewer dimensions are wanted."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gfl_lightning.privacy.randomise.mechanism import Array

PROJECTION_SEED = 0


def directions(x: Array, dimensions: int | None) -> Array:
    """v = Rx/‖Rx‖ ``[n, k]``, R being public; 0 stays 0.

    Records are first divided by their largest entry: the square of a tiny or huge one has no digits left, and a v that
    is not of length 1 would show more than ε.
    """
    largest = np.abs(x).max(axis=1, keepdims=True, initial=0)
    x = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
    if dimensions is not None and dimensions < x.shape[1]:
        x = x @ projection(x.shape[1], dimensions)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return np.divide(x, norm, out=np.zeros_like(x), where=norm > 0)


def somewhere(v: Array, source: np.random.Generator) -> Array:
    """Directions with those that are 0 replaced by uniform ones: every record then is a point of the sphere."""
    missing = ~v.any(axis=1)
    if missing.any():
        drawn = source.standard_normal((int(missing.sum()), v.shape[1]))
        v = v.copy()
        v[missing] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return v


@lru_cache(maxsize=8)
def projection(num_features: int, dimensions: int) -> Array:
    """Rᵀ ``[d, k]`` with independent normal entries of variance 1/k, the same for everybody who knows d and k."""
    source = np.random.default_rng([PROJECTION_SEED, num_features, dimensions])
    return source.standard_normal((num_features, dimensions)) / np.sqrt(dimensions)
