"""Ψ_G, the neighbourhood aggregators: polynomials Z = Σ_i γ_i P^i H with fixed or learnable γ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from gfl_lightning.graphs.propagation import appnp_coefficients, identity_coefficients, sgc_coefficients


class Aggregator(Protocol):
    """What the method needs to know of Ψ_G."""

    @property
    def learnable(self) -> bool:
        """Whether γ is part of W, trained and averaged with the encoder."""

    @property
    def gamma(self) -> Tensor:
        """Coefficients γ ``[M+1]``, or where they start if they are learnable."""


@dataclass(frozen=True)
class APPNP:
    """Personalised PageRank: γ_i = α(1−α)^i, γ_M = (1−α)^M."""

    alpha: float = 0.1
    M: int = 10
    learnable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        appnp_coefficients(self.alpha, self.M)

    @property
    def gamma(self) -> Tensor:
        """Coefficients ``[M+1]``."""
        return appnp_coefficients(self.alpha, self.M)


@dataclass(frozen=True)
class SGC:
    """The k-th power: Z = P^k H."""

    k: int = 2
    learnable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        sgc_coefficients(self.k)

    @property
    def gamma(self) -> Tensor:
        """Coefficients ``[k+1]``."""
        return sgc_coefficients(self.k)


@dataclass(frozen=True)
class Identity:
    """No neighbourhood: plain federated learning, FedMLP with the paper's encoder."""

    learnable: ClassVar[bool] = False

    @property
    def gamma(self) -> Tensor:
        """Coefficients ``[1]``."""
        return identity_coefficients()


@dataclass(frozen=True)
class LearnablePolynomial(APPNP):
    """GPR-GNN: γ starts at APPNP's coefficients and is trained as part of W."""

    learnable: ClassVar[bool] = True
