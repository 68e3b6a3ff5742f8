"""Noise of differential privacy split over clients: every site adds its share, and only sums with enough are opened.

    Σ_k (W̄ + u_k) + Σ_i e_i,    ‖u_k‖ ≤ C,    e_i ~ N(0, n_i σ²/m),    n_i the training clients of site i

The server reads the sum alone, so what hides one client is everybody's noise. σ is what the account takes for each
client's own: m shares of σ²/m are as much, so each adds √m times less than it would have to alone. A site helps to open
a sum only if it holds m shares even without those of the ``colluding`` largest other sites, who know what they added.
It adds the shares of all its training clients in every sum, whoever of them trained.

Models and noise are whole numbers of steps γ, a power of two of which a share of noise has 2²⁴ to 2²⁵. e_i is a sum of
normal numbers that are rounded exactly, ⌊2^b Z⌉ with some b (privacy/exact_normal.py), whose variances add up to that
of the site's shares or a little more. The pmf of a rounded normal number is the density of that number plus one that
is uniform on a step; so the sum of several is, at whole numbers, the density of a normal number plus several uniform
ones, that is the rounding of the Gaussian mechanism with more noise on it: post-processing. (A sum over whole numbers
stands for an integral here. With 2¹⁹ steps to a standard deviation or more the two differ by less than e^(−2³⁸), which
is the δ that the account leaves out.)
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.masking.ticket import Ticket
from gfl_lightning.federated.protocol.messages import Message, ModelUpload
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.exact_normal import FINENESS, rounded_normal
from gfl_lightning.privacy.noise_source import KEY_BYTES, NoiseSource

DIGITS = 6  # of a variance, to the base 4: a site adds at most 4⁻⁵ of it more than it must
FINEST = 30


class NoiseRule(ABC):
    """Who puts noise on models whose sum alone is read."""

    @abstractmethod
    def shares(self, training: int) -> int:
        """How many shares of noise a site with so many training clients adds to every sum."""

    @abstractmethod
    def votes(self, votes: Mapping[int, float]) -> Mapping[int, float]:
        """The weight of each client's model in the sum."""

    @abstractmethod
    def bounded(self, models: Sequence[Message], W: Weights) -> Sequence[Message]:
        """Models as they may enter the sum, W̄ being where they started."""

    @abstractmethod
    def beside(self, shares: int, numbers: Tensor, of_models: int) -> list[Tensor]:
        """What is added to a site's contribution, whose first ``of_models`` numbers are of models."""

    @abstractmethod
    def require_enough_for(
        self, site: str, ticket: Ticket, shares: Mapping[str, int], contributing: Collection[str]
    ) -> None:
        """Refuse a sum over some sites whose noise does not hide each client of one of them."""

    def require_enough(self, ticket: Ticket, shares: Mapping[str, int], contributing: Collection[str]) -> None:
        """The same for each site that contributes."""
        for site in sorted(contributing):
            self.require_enough_for(site, ticket, shares, contributing)


@dataclass(frozen=True)
class Whole(NoiseRule):
    """Every client has put its own noise on its model, if there is any: nothing is added to sums.

    >>> Whole().shares(5)
    0
    """

    def shares(self, training: int) -> int:
        """None."""
        return 0

    def votes(self, votes: Mapping[int, float]) -> Mapping[int, float]:
        """As the server tells them."""
        return votes

    def bounded(self, models: Sequence[Message], W: Weights) -> Sequence[Message]:
        """As they are."""
        return models

    def beside(self, shares: int, numbers: Tensor, of_models: int) -> list[Tensor]:
        """Nothing."""
        return []

    def require_enough_for(
        self, site: str, ticket: Ticket, shares: Mapping[str, int], contributing: Collection[str]
    ) -> None:
        """Every sum will do."""


@dataclass(frozen=True)
class Split(NoiseRule):
    """Every site adds its clients' shares of the noise.

    >>> split = Split(std=4.0, clip=1.0, over=5, colluding=1)
    >>> split.counted("a", {"a": 2, "b": 3, "c": 4}, ["a", "b", "c"])
    5

    Args:
        std: σ, the noise that a client would need alone.
        clip: C.
        over: m, how many shares make up σ².
        colluding: how many sites may tell the server which noise they have added.
    """

    std: float
    clip: float
    over: int
    colluding: int

    def shares(self, training: int) -> int:
        """One for each client that trains."""
        return training

    def votes(self, votes: Mapping[int, float]) -> Mapping[int, float]:
        """1, whatever the server says: it could make the others' noise small against one client's model."""
        return dict.fromkeys(votes, 1.0)

    @property
    def step(self) -> float:
        """γ, a power of two."""
        return 2.0 ** (math.frexp(self.std / math.sqrt(self.over))[1] - 1 - FINENESS)

    def finenesses(self, shares: int) -> list[int]:
        """b of normal numbers ⌊2^b Z⌉ of steps that together have the variance of so many shares, or a little more."""
        if not shares:
            return []
        variance = shares * (self.std / self.step) ** 2 / self.over * (1 + 1e-12)
        lowest = (math.frexp(variance)[1] - 1) // 2 + 1 - DIGITS
        rest, found = math.ceil(variance / 4.0**lowest), list[int]()
        for fineness in range(lowest, lowest + DIGITS + 1):
            rest, digit = divmod(rest, 4)
            found += [min(fineness, FINEST)] * (digit * 4 ** max(0, fineness - FINEST))
        return found

    def bounded(self, models: Sequence[Message], W: Weights) -> Sequence[Message]:
        """W̄ + u min(1, C/‖u‖), in double precision and whole steps."""
        return [self._bounded(model, W) for model in models if isinstance(model, ModelUpload)]

    def _bounded(self, model: ModelUpload, W: Weights) -> ModelUpload:
        start = {name: weight.double() for name, weight in W.items()}
        update = {name: model.weights[name].double() - weight for name, weight in start.items()}
        norm = float(torch.stack([part.square().sum() for part in update.values()]).sum().sqrt())
        scale = min(1.0, self.clip / norm) if norm > 0 else 1.0
        moved = {name: weight + scale * update[name] for name, weight in start.items()}
        return replace(
            model, weights={name: (weight / self.step).round() * self.step for name, weight in moved.items()}
        )

    def beside(self, shares: int, numbers: Tensor, of_models: int) -> list[Tensor]:
        """N(0, n σ²/m) on the numbers of models, drawn for this contribution alone.

        It is another one where the same contribution is asked for again: beside other sites' new noise the same would
        be averaged out of two sums.
        """
        source, steps = NoiseSource(secrets.token_bytes(KEY_BYTES)), torch.zeros(of_models, dtype=torch.int64)
        for fineness in self.finenesses(shares):
            steps += rounded_normal((of_models,), source, fineness)
        noise = torch.zeros_like(numbers, dtype=torch.float64)
        noise[:of_models] = steps * self.step
        return [noise]

    def counted(self, site: str, shares: Mapping[str, int], contributing: Collection[str]) -> int:
        """Shares in a sum that hide a site's clients: all but those of the ``colluding`` largest other sites."""
        others = sorted((shares[other] for other in contributing if other != site), reverse=True)
        return shares[site] + sum(others[self.colluding :])

    def require_enough_for(
        self, site: str, ticket: Ticket, shares: Mapping[str, int], contributing: Collection[str]
    ) -> None:
        """m shares must be left without the ``colluding`` largest other sites."""
        counted = self.counted(site, shares, contributing)
        if counted < self.over:
            raise InputError(
                f"{ticket} must hold {self.over} shares of noise for the clients of {site} without those of the "
                f"{self.colluding} largest other sites, got {counted}; take a smaller masking.split, or wait for more "
                "sites."
            )
