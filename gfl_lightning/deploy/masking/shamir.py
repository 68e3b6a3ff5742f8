"""Shamir's sharing of a secret: t of n shares determine it, t − 1 say nothing about it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from gfl_lightning.checks import require

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: bytes, threshold: int, points: Sequence[int]) -> list[bytes]:
    """f(x) at each point for a random f of degree t − 1 with f(0) = secret, modulo the least prime above 2^256.

    >>> shares = split(bytes(range(32)), 2, points=(1, 2, 3))
    >>> recover({1: shares[0], 3: shares[2]}) == bytes(range(32))
    True
    """
    require(len(secret) == SECRET_BYTES, "a secret", f"be of {SECRET_BYTES} bytes", len(secret))
    require(1 <= threshold <= len(points), "threshold", f"lie in [1, {len(points)}]", threshold)
    require(0 not in points and len(set(points)) == len(points), "points", "differ and not be 0", list(points))
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return [_value(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in points]


def recover(shares: Mapping[int, bytes]) -> bytes | None:
    """f(0) from at least t shares by their points; with fewer, or a false one, anything, or ``None`` for no secret."""
    return combine(shares, weights_at_zero(tuple(shares)))


def combine(shares: Mapping[int, bytes], weights: Mapping[int, int]) -> bytes | None:
    """Σ_x weight_x f(x): :func:`recover` with weights that many secrets of the same points may use."""
    value = sum(weight * int.from_bytes(shares[x], "big") for x, weight in weights.items()) % PRIME
    return value.to_bytes(SECRET_BYTES, "big") if value < 2**256 else None


def weights_at_zero(points: Sequence[int]) -> dict[int, int]:
    """Lagrange's Π_{y≠x} y/(y − x) modulo the prime."""
    weights = {}
    for x in points:
        above = below = 1
        for y in points:
            if y != x:
                above, below = above * y % PRIME, below * (y - x) % PRIME
        weights[x] = above * pow(below, -1, PRIME) % PRIME
    return weights


def _value(coefficients: Sequence[int], x: int) -> int:
    """Horner's scheme modulo the prime."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value
