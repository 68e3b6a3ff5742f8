"""Noise that the last bits of a number do not give away: value and noise are rounded to a lattice, then added.

The floating point sum u + e has bits that depend on u: which numbers can come out at all may tell two values of u apart
with certainty, whatever the noise (Mironov 2012). Here γ (⌊u/γ⌉ + ⌊e/γ⌉) is released, with γ = 2⁻²⁴ times the noise.
The sum of whole numbers is exact, so that every u has the same possible results. With e from a normal law, ⌊e/γ⌉ is
drawn as a whole number that has exactly the probability of its cell (privacy/exact_normal.py), and ⌊u⌉ + ⌊e⌉ is
⌊⌊u⌉ + e⌉, a function of the Gaussian mechanism on the rounded value. Rounding moves two values apart by at most γ in
each of n entries: the sensitivity is Δ + γ√n. Whatever becomes of the sum afterwards, such as single precision, is a
function of it.
"""

from __future__ import annotations

import math

from torch import Tensor

from gfl_lightning.privacy.exact_normal import FINENESS

ROUNDING = 2.0**-16
"""By how much a bound on a norm may be exceeded for being computed in single precision, as a share of it."""
LEAST_BOUND = 1e-12
"""Below it the squares in a norm are smaller than the smallest numbers of single precision, and are lost."""


def spacing(spread: float) -> float:
    """γ = 2⁻²⁴ spread for noise of that size, exactly; 0 where there is none.

    >>> spacing(1.5) * 2**24, spacing(0.0)
    (1.5, 0.0)
    """
    return math.ldexp(spread, -FINENESS)


def on_lattice(value: Tensor, noise: Tensor, grid: float | Tensor) -> Tensor:
    """γ (⌊u/γ⌉ + ⌊e/γ⌉), as exact whole numbers, in the value's type and place."""
    steps = value.double().div(grid).round_() + noise.to(value.device).div(grid).round_()
    return steps.mul_(grid).to(value.dtype)


def rounded(sensitivity: Tensor, entries: int, grid: float) -> Tensor:
    """Δ' = Δ (1 + 2⁻¹⁶) + γ√n: how far apart two values may be once they are bounded in floating point and rounded."""
    return sensitivity * (1 + ROUNDING) + grid * math.sqrt(entries)
