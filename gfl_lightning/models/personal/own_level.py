"""A bias of each client's own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gfl_lightning.models.personal.personal import Personal, ones, require_strength


@dataclass(frozen=True)
class OwnLevel(Personal):
    """z_{k,s} gets b_k ``[c]``, held to 0 by ½ λ ‖b_k‖²: a random intercept, as statisticians call it.

    >>> OwnLevel(strength=2.0).strengths(10)
    (2.0,)

    Args:
        strength: λ; under squared error b_k is n_k / (n_k + λ) times the mean residual of client k.
    """

    strength: float = 5.0

    def __post_init__(self) -> None:
        require_strength("strength", self.strength)

    def features(self, x: Tensor) -> Tensor:
        """φ = 1."""
        return ones(x)

    def strengths(self, num_features: int) -> tuple[float, ...]:
        """λ."""
        return (self.strength,)
