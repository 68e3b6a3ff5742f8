"""The contract of Ψ_G, the neighbourhood aggregator: Z = Σ_i γ_i P^i H, γ fixed or trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from gfl_lightning.checks import require

MOST_HOPS = 10_000
"""More propagation steps than any graph tells apart."""


class Aggregator(ABC):
    """A polynomial of P = D̂^{-1/2}(A+I)D̂^{-1/2} over the graph of clients.

    A subclass is a frozen dataclass of its options that says what its coefficients are; propagation, the round, the
    protocols and the account of privacy follow from them.

    >>> import torch
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Neighbours(Aggregator):
    ...     own: float = 0.5
    ...
    ...     @property
    ...     def gamma(self) -> Tensor:
    ...         return torch.tensor([self.own, 1 - self.own], dtype=torch.float64)
    >>> Neighbours(own=0.25).isolates
    False
    """

    learnable: ClassVar[bool] = False
    """Whether γ is part of W, trained and averaged with the encoder."""

    @property
    @abstractmethod
    def gamma(self) -> Tensor:
        """Coefficients γ ``[M+1]`` in double precision, or where they start if they are learnable."""

    def __post_init__(self) -> None:
        gamma = self.gamma
        require(gamma.ndim == 1 and len(gamma) >= 1, "gamma", "be a vector", list(gamma.shape))
        require(bool(gamma.isfinite().all()), "gamma", "be finite", gamma.tolist())

    @property
    def isolates(self) -> bool:
        """Whether Ã = γ_0 I for good, so that no client sees another."""
        return not self.learnable and not bool(self.gamma[1:].any())

    @property
    def hops(self) -> int:
        """How many aggregates a client receives: one, or one for each power of P where γ is learnable."""
        return len(self.gamma) if self.learnable else 1
