"""A linear encoder: aggregation meets the features before anything nonlinear does."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.models.encoders.encoder import Encoder, Shapes, Weights


@dataclass(frozen=True)
class Linear(Encoder):
    """h = W x, from W = 0: logistic regression on what Ã makes of the features.

    As Ã H = (Ã X) Wᵀ, noise in the features of many clients averages out before it is ever squashed, which is what
    randomised records ask for. The Jacobian of a sample is x itself, whatever W is: on the linear path a round costs
    little, and its cost does not depend on how deep Ã propagates. The problem is convex, so it needs no random start.

    >>> Linear().shapes(100, 2)
    {'W': (2, 100)}
    """

    def shapes(self, num_features: int, num_classes: int) -> Shapes:
        """W."""
        return {"W": (num_classes, num_features)}

    def initial_weights(self, shapes: Shapes, generator: torch.Generator, dtype: torch.dtype) -> Weights:
        """Zero."""
        return {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}

    def __call__(self, weights: Weights, x: Tensor) -> Tensor:
        """W x."""
        return x @ weights["W"].T

    @property
    def feature_weight(self) -> str:
        """W."""
        return "W"

    @property
    def linear_weight(self) -> str:
        """W."""
        return "W"
