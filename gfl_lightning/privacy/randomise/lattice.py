"""Draws on a lattice: the low bits of a floating-point number tell what was computed, those of a lattice point do not.

Rounding is applied to a draw, so it can only hide more. The lattice is coarse against the arithmetic in double
precision (2⁻¹⁰ of a standard deviation against 2⁻⁵²), so that a rounding error moves a draw to another point with a
probability of about 2⁻⁴⁰ per entry, and fine against the noise, so that nothing is lost.
"""

from __future__ import annotations

import numpy as np

from gfl_lightning.privacy.randomise.mechanism import Array

RESOLUTION = 2.0**-10


def on_lattice(draw: Array, scale: float) -> Array:
    """The nearest multiples of a power of two of about 2⁻¹⁰ times ``scale``, exact in single precision as well."""
    step = RESOLUTION * 2.0 ** np.ceil(np.log2(scale))
    return np.round(draw / step) * step
