"""Edges beyond a client's own: who is a neighbour of its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.fellow.received import LONG, aggregates, numbers_of
from gfl_lightning.attacks.knowledge import OwnPlace
from gfl_lightning.attacks.scores import ranked
from gfl_lightning.attacks.units import received_units
from gfl_lightning.attacks.views import Kinds, Round, View
from gfl_lightning.federated.protocol.messages import FactorAggregate, JacobianAggregate, RepresentationAggregate
from gfl_lightning.models.encoders.encoder import SizedEncoder


@dataclass(frozen=True)
class DistantEdges(Attack[OwnPlace]):
    """What client k receives is Σ_j Ã_kj φ_j; with φ_j known for some clients, least squares gives their Ã_kj.

    The adversary knows the records of some clients by name, not whom they are connected to. φ_j is then known:
    s_j x_jᵀ, a_j, h_j at every round's W̄. Ã_kj is large where a path from k to j is short.

    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> generator = torch.Generator().manual_seed(0)
    >>> encoder = SizedEncoder(MLP((32,)), num_features=8, num_classes=2)
    >>> W, x = encoder.initial_weights(generator), torch.randn(10, 8, generator=generator)
    >>> near = torch.arange(10) < 3
    >>> sent = JacobianAggregate(0, torch.func.jacrev(lambda w: (0.1 * near) @ encoder(w, x))(W))
    >>> known = OwnPlace(x, torch.arange(10) % 2, 2, own_x=x[:1], candidates=x)
    >>> DistantEdges().score(DistantEdges().guess(View.of(encoder, [Round(W, (sent,))]), known), near)
    1.0

    Args:
        rounds: how many are used at most, a dozen times as many where ∇C_k is noisy.
    """

    rounds: int = 4
    adversary: ClassVar[Adversary] = "fellow client"
    aim: ClassVar[str] = "which of the clients whose records it knows are neighbours of its neighbours"
    measure: ClassVar[str] = "area under the ROC curve"
    kinds: ClassVar[Kinds] = (JacobianAggregate, FactorAggregate, RepresentationAggregate)

    def guess(self, view: View, knowledge: OwnPlace) -> Tensor:
        """Ã_kj of the candidates ``[q]``, by ridge regression; a last regressor stands for everybody else."""
        x = torch.cat([knowledge.candidates, knowledge.mean[None]])
        gram, right = x.new_zeros(len(x), len(x)), x.new_zeros(len(x))
        noisy = knowledge.std.get(JacobianAggregate, 0.0) > 0
        for one in view.first(self.rounds * LONG if noisy else self.rounds):
            for G, r in self._equations(view.encoder, one, x, knowledge):
                scale = G.diagonal().mean().clamp_min(torch.finfo(G.dtype).tiny)
                gram, right = gram + G / scale, right + r / scale
        if not bool(gram.any()):
            return self.blind(knowledge)
        ridge = 1e-2 * gram.diagonal().mean() * torch.eye(len(x), dtype=x.dtype)
        return torch.linalg.solve(gram + ridge, right)[:-1]

    @staticmethod
    def _equations(encoder: SizedEncoder, one: Round, x: Tensor, known: OwnPlace) -> list[tuple[Tensor, Tensor]]:
        """Normal equations of each kind of message: ⟨φ_i, φ_j⟩ and ⟨φ_i, received⟩."""
        found = []
        seen = aggregates(one)
        if len(seen):
            phi = numbers_of(encoder, one, x, known.own_x)
            found.append((phi @ phi.T, phi @ seen))
        sent, structure = one.find(JacobianAggregate) or one.find(FactorAggregate), encoder.structure
        units = None if sent is None else received_units(encoder, one.weights, sent)
        if units is not None and structure is not None:
            T, precision = units
            weight = precision.square() if known.std.get(JacobianAggregate, 0.0) else torch.ones_like(precision)
            s = (x @ structure.split(one.weights)[0].T > 0).to(x)
            found.append((((s * weight) @ s.T) * (x @ x.T), (((s * weight) @ T) * x).sum(1)))
        return found

    def blind(self, knowledge: OwnPlace) -> Tensor:
        """Who resembles the client itself."""
        return F.normalize(knowledge.candidates, dim=1) @ F.normalize(knowledge.own_x.mean(0), dim=0)

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Area under the ROC curve, of truth ``[q]``."""
        return ranked(guess, truth)

    def in_words(self, success: float, read: float) -> str:
        """As a bet."""
        return f"of two strangers a client picks its neighbour's neighbour {100 * success:.0f} times of 100"
