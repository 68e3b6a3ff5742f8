"""Edges beyond a client's own: who is a neighbour of its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.fellow.received import LONG, aggregates, numbers_of
from gfl_lightning.attacks.knowledge import Clients, OwnPlace
from gfl_lightning.attacks.scores import ranked
from gfl_lightning.attacks.units import received_units
from gfl_lightning.attacks.views import Kinds, Round, View
from gfl_lightning.federated.protocol.messages import FactorAggregate, JacobianAggregate, RepresentationAggregate
from gfl_lightning.models.encoders.encoder import SizedEncoder

RIDGE = 1e-2


@dataclass(frozen=True, eq=False)
class Equations:
    """Normal equations of y ≈ φᵀ a.

    Args:
        gram: ⟨φ_i, φ_j⟩ ``[q, q]``.
        right: ⟨φ_i, y⟩ ``[q]``.
        squares: ‖y‖².
        count: the length of y.
    """

    gram: Tensor
    right: Tensor
    squares: float
    count: int

    @classmethod
    def none(cls, unknowns: int, like: Tensor) -> Equations:
        """Of no numbers."""
        return cls(like.new_zeros(unknowns, unknowns), like.new_zeros(unknowns), 0.0, 0)

    def plus(self, other: Equations) -> Equations:
        """With others, whose y are scaled to a mean square of 1: what is mostly noise counts for little."""
        scale = max(other.squares / other.count, torch.finfo(other.gram.dtype).tiny)
        gram, right = self.gram + other.gram / scale, self.right + other.right / scale
        return Equations(gram, right, self.squares + other.squares / scale, self.count + other.count)

    def solved(self) -> tuple[Tensor, float]:
        """a ``[q]`` by ridge regression, and how sure it is: 0 where half of its variance may be the residuals'."""
        unit = self.gram.diagonal().mean() * torch.eye(len(self.gram), dtype=self.gram.dtype)
        inverse = torch.linalg.inv(self.gram + RIDGE * unit)
        a = inverse @ self.right
        left = max(0.0, self.squares - float(2 * a @ self.right - a @ self.gram @ a))
        free = max(1, self.count - len(a))
        error = left / free * float((inverse @ self.gram @ inverse).diagonal()[:-1].mean())
        return a, max(0.0, 1 - 2 * error / max(float(a[:-1].var()), torch.finfo(a.dtype).tiny))


def standard(numbers: Tensor) -> Tensor:
    """With mean 0 and standard deviation 1, if they are not all alike."""
    return (numbers - numbers.mean()) / numbers.std().clamp_min(torch.finfo(numbers.dtype).tiny)


@dataclass(frozen=True)
class DistantEdges(Attack[OwnPlace]):
    """What client k receives is Σ_j Ã_kj φ_j; with φ_j known for some clients, least squares gives their Ã_kj.

    The adversary knows the records of some clients by name, not whom they are connected to. φ_j is then known:
    s_j x_jᵀ, a_j, h_j at every round's W̄, the mean over its records where it has several. Ã_kj is large where a path
    from k to j is short. As far as the residuals leave the Ã_kj of candidates uncertain, who resembles the client
    itself is taken for near.

    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> generator = torch.Generator().manual_seed(0)
    >>> encoder = SizedEncoder(MLP((32,)), num_features=8, num_classes=2)
    >>> W, x = encoder.initial_weights(generator), torch.randn(10, 8, generator=generator)
    >>> near = torch.arange(10) < 3
    >>> sent = JacobianAggregate(0, torch.func.jacrev(lambda w: (0.1 * near) @ encoder(w, x))(W))
    >>> known = OwnPlace(x, torch.arange(10) % 2, 2, own_x=x[:1], candidates=Clients.of(list(x.split(1))))
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
        """How likely each of the candidates is near ``[q]``: its Ã_kj by ridge regression, as far as that can be told.

        A last regressor stands for everybody else.
        """
        asked = knowledge.candidates
        everybody = asked.owner.new_full((len(knowledge.public_x),), len(asked))
        who = Clients(torch.cat([asked.x, knowledge.public_x]), torch.cat([asked.owner, everybody]))
        total = Equations.none(len(who), asked.x)
        noisy = knowledge.std.get(JacobianAggregate, 0.0) > 0
        for one in view.first(self.rounds * LONG if noisy else self.rounds):
            for some in self._equations(view.encoder, one, who, knowledge):
                total = total.plus(some)
        if not bool(total.gram.any()):
            return self.blind(knowledge)
        found, sure = total.solved()
        return sure * standard(found[:-1]) + (1 - sure) * standard(self.blind(knowledge))

    @staticmethod
    def _equations(encoder: SizedEncoder, one: Round, who: Clients, known: OwnPlace) -> list[Equations]:
        """Normal equations of each kind of message: ⟨φ_i, φ_j⟩ and ⟨φ_i, received⟩."""
        found = []
        seen = aggregates(one)
        if len(seen):
            phi = who.means(numbers_of(encoder, one, who.x, known))
            found.append(Equations(phi @ phi.T, phi @ seen, float(seen.square().sum()), len(seen)))
        sent, structure = one.find(JacobianAggregate) or one.find(FactorAggregate), encoder.structure
        units = None if sent is None else received_units(encoder, one.weights, sent)
        if units is not None and structure is not None:
            T, precision = units
            weight = precision.square() if known.std.get(JacobianAggregate, 0.0) else torch.ones_like(precision)
            s, x = (who.x @ structure.split(one.weights)[0].T > 0).to(who.x), who.x
            each = who.means(((s * weight) @ s.T) * (x @ x.T))
            right = who.means((((s * weight) @ T) * x).sum(1, keepdim=True))[:, 0]
            found.append(Equations(who.means(each.T), right, float((weight @ T.square()).sum()), T.numel()))
        return found

    def blind(self, knowledge: OwnPlace) -> Tensor:
        """Who resembles the client itself."""
        records = knowledge.candidates.means(knowledge.candidates.x)
        return F.normalize(records, dim=1) @ F.normalize(knowledge.own_x.mean(0), dim=0)

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Area under the ROC curve, of truth ``[q]``."""
        return ranked(guess, truth)

    def in_words(self, success: float, read: float) -> str:
        """As a bet."""
        return f"of two strangers a client picks its neighbour's neighbour {100 * success:.0f} times of 100"
