"""The contract of a noise mechanism: what happens to an upload before it leaves a client, and what that costs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.privacy.lattice import LEAST_BOUND, on_lattice, spacing
from gfl_lightning.privacy.noise_source import NoiseSource


def require_bound(clip: float) -> None:
    """Refuse a bound that no norm can be held to."""
    require(clip > 0, "clip", "be positive", clip)
    require(clip >= LEAST_BOUND, "clip", f"be at least {LEAST_BOUND:g}, as squares of less vanish", clip)


@dataclass(frozen=True, eq=False)
class Cost:
    """What one release costs each client ``[N]``, in the two currencies of the account.

    >>> Cost.nothing(2).pure.tolist()
    [0.0, 0.0]

    Args:
        mu_squared: (Δ/σ)² of a Gaussian release; these add up, exactly. ∞ where nothing is promised.
        pure: ε of a release that is ε-private with δ = 0; these add up too (basic composition).
    """

    mu_squared: Tensor
    pure: Tensor

    @classmethod
    def nothing(cls, num_clients: int) -> Cost:
        """Of what is not released."""
        zero = torch.zeros(num_clients, dtype=torch.float64)
        return cls(zero, zero)

    @classmethod
    def unbounded(cls, num_clients: int) -> Cost:
        """Of what is released without any promise."""
        return cls(torch.full((num_clients,), math.inf, dtype=torch.float64), torch.zeros(num_clients).double())


class Mechanism(ABC):
    """u ↦ ⌊u · min(1, C/‖u‖)⌉ + ⌊noise⌉, for one kind of upload u: ĥ_j, ∇ĥ_j or W_k − W̄.

    ⌊·⌉ rounds to a lattice that is coarse against the arithmetic (privacy/lattice.py): the last bits of a sum of
    floating point numbers would tell what was added. A subclass is a frozen dataclass of its options, ``clip`` among
    them. It says how large its noise is, how that is drawn and what a release costs; a mechanism that cannot promise
    anything leaves :meth:`cost` as it is, and the account says ε = ∞.

    >>> @dataclass(frozen=True)
    ... class Uniform(Mechanism):
    ...     width: float = 1.0
    ...     clip: float = math.inf
    ...
    ...     @property
    ...     def spread(self) -> float:
    ...         return self.width
    ...
    ...     def draw(self, shape, source):
    ...         return self.width * (source.uniform(shape) - 0.5)
    >>> Uniform(clip=1.0).cost(torch.tensor([2.0]), entries=7).mu_squared.tolist()
    [inf]
    """

    clip: float
    """C, the bound on the Euclidean norm; infinite means none."""

    def __post_init__(self) -> None:
        require_bound(self.clip)

    @property
    @abstractmethod
    def spread(self) -> float:
        """How large the noise on an entry is, such as its standard deviation; 0 where nothing is added."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...], source: NoiseSource) -> Tensor:
        """The noise on every entry of an upload, in double precision; only called where there is some."""

    def draw_sum(self, coefficients: Tensor, shape: tuple[int, ...], source: NoiseSource) -> Tensor:
        """Σ_k coefficients_k e_k over the independent noise e_k of K uploads; one draw after another by default."""
        total = torch.zeros(shape, dtype=torch.float64)
        for coefficient in coefficients.tolist():
            total += coefficient * self.draw(shape, source)
        return total

    @property
    def grid(self) -> float:
        """γ, the spacing of the lattice; 0 where there is no noise."""
        return spacing(self.spread)

    def released(self, bounded: Tensor, source: NoiseSource) -> Tensor:
        """A bounded upload as it leaves the client: it and its noise, both on the lattice."""
        if not self.is_noisy:
            return bounded
        return on_lattice(bounded, self.draw(tuple(bounded.shape), source), self.grid)

    @property
    def is_noisy(self) -> bool:
        """Whether anything is added at all."""
        return self.spread > 0

    def cost(self, sensitivity: Tensor, entries: int) -> Cost:
        """What a release of ``entries`` numbers costs clients that move it by ``sensitivity [N]`` (Euclidean)."""
        return Cost.unbounded(len(sensitivity))

    def scaled(self, z: float, sensitivity: float) -> Mechanism:
        """The mechanism with z times its noise, or with noise of z times the sensitivity where it has none."""
        raise InputError(f"calibrate must be false for {type(self).__name__}, which cannot be scaled, got true.")

    @property
    def is_bounded(self) -> bool:
        """Whether C is finite."""
        return math.isfinite(self.clip)

    @property
    def is_inert(self) -> bool:
        """Whether an upload leaves as it was computed."""
        return not self.is_bounded and not self.is_noisy

    @property
    def gap(self) -> str | None:
        """Why bound and noise are no guarantee; ``None`` where they are one, if the mechanism's cost says so."""
        if self.is_bounded:
            return None if self.is_noisy else "no noise"
        return "no bound" if self.is_noisy else "neither bound nor noise"
