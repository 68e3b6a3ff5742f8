"""The contract of personal terms: numbers of one client alone, which it fits by itself and never uploads.

Client k predicts by
    z_{k,s} = g_k (Ã_kk h_{k,s} + C_k) + (1 − g_k) h_{k,s} + B_k φ(x_{k,s})
with a gate g_k between what the graph says and its own term, and B_k ``[c, q]`` over features φ of its samples. At
every W̄ it takes the (g_k, B_k) that minimise Σ_s w_s ℓ_s + ½ Σ λ (distance from the shared model)² over its n_k
training samples, a convex problem: the more records a client has, the less the second term holds it back. Under squared
error and φ = 1 that is B_k = n_k / (n_k + λ) times its mean residual.

The local steps of a round hold (g_k, B_k) fixed. With I = 1 a round is then a gradient step on what is left of the loss
once every client has done its best: at a minimum, the slope by what is minimised over is 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gfl_lightning.checks import require


class Personal(ABC):
    """Which personal terms a client has, and how strongly each is held to the shared model.

    A subclass is a frozen dataclass of its options.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class OwnTrend(Personal):
    ...     strength: float = 5.0
    ...
    ...     def features(self, x: Tensor) -> Tensor:
    ...         return x[:, :1]
    ...
    ...     def strengths(self, num_features: int) -> tuple[float, ...]:
    ...         return (self.strength,)
    >>> OwnTrend().is_inert, OwnTrend().gate_strength
    (False, inf)
    """

    @property
    def gate_strength(self) -> float:
        """λ of (g_k − 1)²; infinite where there is no gate."""
        return math.inf

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """φ of samples, ``[S, d] → [S, q]``."""

    @abstractmethod
    def strengths(self, num_features: int) -> tuple[float, ...]:
        """λ of each of the q columns of B_k."""

    @property
    def ungated(self) -> Personal:
        """The same for clients without neighbours, to whom a gate makes no difference."""
        return self

    @property
    def estimates(self) -> bool:
        """Whether the strengths are multiples of one that the clients estimate together at every W̄."""
        return False

    @property
    def is_inert(self) -> bool:
        """Whether a client has nothing of its own."""
        return False


def ones(x: Tensor) -> Tensor:
    """φ = 1, ``[S, 1]``."""
    return torch.ones_like(x[:, :1])


def require_strength(argument: str, value: float, infinite: bool = False) -> None:
    """Refuse a strength that is not positive; only some may be infinite."""
    rule = "be positive" if infinite else "be positive and finite"
    require(value > 0 and (infinite or math.isfinite(value)), argument, rule, value)
