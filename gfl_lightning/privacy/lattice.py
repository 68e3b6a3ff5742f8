"""Noise that the last bits of a number do not give away: value and noise are rounded to a lattice, then added.

The floating point sum u + e has bits that depend on u: which numbers can come out at all may tell two values of u apart
with certainty, whatever the noise (Mironov 2012). Here γ (⌊u/γ⌉ + ⌊e/γ⌉) is released, γ a power of two about 2⁻²⁴ of
the noise. The sum of whole numbers is exact, so that every u has the same possible results. With e from a normal law,
⌊u⌉ + ⌊e⌉ is ⌊⌊u⌉ + e⌉, a function of the Gaussian mechanism on the rounded value. Rounding moves two values apart by at
most γ in each of n entries: the sensitivity is Δ + γ√n. Noise in double precision takes about 2²⁹ values in each cell
of the lattice. Whatever becomes of the sum afterwards, such as single precision, is a function of it.
"""

from __future__ import annotations

import math

from torch import Tensor

FINENESS = 24
ROUNDING = 2.0**-16
"""By how much a bound on a norm may be exceeded for being computed in single precision, as a share of it."""


def spacing(spread: float) -> float:
    """γ = 2^(⌊log₂ spread⌋ − 24) for noise of that size; 0 where there is none.

    >>> spacing(1.5) == 2**-24, spacing(0.0)
    (True, 0.0)
    """
    return 2.0 ** max(math.floor(math.log2(spread)) - FINENESS, -1022) if spread > 0 else 0.0


def on_lattice(value: Tensor, noise: Tensor, grid: float | Tensor) -> Tensor:
    """γ (⌊u/γ⌉ + ⌊e/γ⌉), as exact whole numbers, in the value's type and place."""
    steps = value.double().div(grid).round_() + noise.to(value.device).div(grid).round_()
    return steps.mul_(grid).to(value.dtype)


def rounded(sensitivity: Tensor, entries: int, grid: float) -> Tensor:
    """Δ' = Δ (1 + 2⁻¹⁶) + γ√n: how far apart two values may be once they are bounded in floating point and rounded."""
    return sensitivity * (1 + ROUNDING) + grid * math.sqrt(entries)
