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
        strength: λ; under squared error b_k is n_k / (n_k + λ) times the mean residual of client k. Left out, it is
            estimated at every W̄ from how much the residuals of a client agree: five sums that each client uploads.
            Where labels are numbers and the encoder has a bias, what levels have in common is then left to the bias.
    """

    strength: float | None = None

    def __post_init__(self) -> None:
        if self.strength is not None:
            require_strength("strength", self.strength)

    @property
    def estimates(self) -> bool:
        """Whether no λ is given."""
        return self.strength is None

    def features(self, x: Tensor) -> Tensor:
        """φ = 1."""
        return ones(x)

    def strengths(self, num_features: int) -> tuple[float, ...]:
        """λ, or 1 of what is estimated."""
        return (1.0 if self.strength is None else self.strength,)
