"""Features that are not released at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gfl_lightning.privacy.randomise.mechanism import Array, FeatureMechanism


@dataclass(frozen=True)
class Withheld(FeatureMechanism):
    """x̃ = 0: clients give their labels, if they have any in use, and nothing else.

    *Why it is ε-private.* Nothing depends on x.

    >>> Withheld().draw(np.ones((3, 4)), 1.0, np.random.default_rng(0)).shape
    (3, 1)
    """

    def width(self, num_features: int) -> int:
        """One column of zeros."""
        return 1

    def expected(self, x: Array) -> Array:
        """Nothing."""
        return np.zeros((len(x), 1))

    def drawn(self, x: Array, epsilon: float, source: np.random.Generator) -> Array:
        """Nothing."""
        return self.expected(x)
