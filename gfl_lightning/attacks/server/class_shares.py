"""How many samples of each class a client trains on, from its model update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.server.updates import Update, solved_residual, updates_of
from gfl_lightning.attacks.units import activation
from gfl_lightning.attacks.views import Kinds, Round, View
from gfl_lightning.federated.protocol.messages import (
    FactorUpload,
    JacobianAggregate,
    JacobianUpload,
    ModelUpload,
    RepresentationAggregate,
    RepresentationUpload,
)


@dataclass(frozen=True)
class ClassShares(Attack[Knowledge]):
    """mean y = mean ŷ − Σr/I, with Σr from −ΔW2/η ≈ Σr (Ã_kk ā + A_k)ᵀ and ŷ ≈ softmax(Ã_kk ĥ_k + C_k).

    ā, A_k, ĥ_k and C_k are the server's own messages; where one is not sent (V1, no graph) the mean public record
    stands for the client's. A round counts as far as noise and bound on W_k let it: a residual of length 1 that the
    bound cuts to b is wrong by 1 − b.

    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> generator = torch.Generator().manual_seed(0)
    >>> encoder = SizedEncoder(MLP((16,)), num_features=4, num_classes=2)
    >>> W, x = encoder.initial_weights(generator), torch.rand(40, 4, generator=generator)
    >>> y = (torch.arange(40) < 30).long()
    >>> loss = lambda w: torch.nn.functional.cross_entropy(encoder(w, x), y)
    >>> after = {name: W[name] - 0.1 * g for name, g in torch.func.grad(loss)(W).items()}
    >>> view = View.of(encoder, [Round(W, (ModelUpload(0, after),))], lr=0.1)
    >>> public = Knowledge(torch.rand(9, 4, generator=generator), torch.arange(9) % 2, num_classes=2, samples=40)
    >>> ClassShares().score(ClassShares().guess(view, public), torch.tensor([0.25, 0.75])) > 0.95
    True

    Args:
        rounds: how many are used at most.
    """

    rounds: int = 4
    adversary: ClassVar[Adversary] = "server"
    aim: ClassVar[str] = "the share of each class among a client's training samples, from W_k − W̄"
    measure: ClassVar[str] = "1 − total variation distance to the true shares"
    kinds: ClassVar[Kinds] = (ModelUpload,)
    helpful: ClassVar[Kinds] = (
        JacobianUpload,
        FactorUpload,
        JacobianAggregate,
        RepresentationAggregate,
        RepresentationUpload,
    )

    def applies(self, view: View) -> bool:
        """Whether there is a second weight to look at, or Jacobians to solve with."""
        return super().applies(view) and (view.encoder.structure is not None or JacobianUpload in view.kinds())

    def guess(self, view: View, knowledge: Knowledge) -> Tensor:
        """The mean over the rounds ``[c]``."""
        seen = [self._of(view, one, update, knowledge) for one, update in updates_of(view, self.rounds)]
        if not seen:
            return self.blind(knowledge)
        prior = self.blind(knowledge)
        spread = float((prior * (1 - prior)).mean())
        trusted = [spread / (spread + variance) for _, variance in seen]
        shares = sum(((t * (one - prior) for t, (one, _) in zip(trusted, seen, strict=True))), 0 * prior) / len(seen)
        shares = (prior + shares).clamp_min(0)
        return shares / shares.sum().clamp_min(torch.finfo(shares.dtype).tiny)

    @staticmethod
    def _of(view: View, one: Round, update: Update, knowledge: Knowledge) -> tuple[Tensor, float]:
        """What a round says, and how wrong noise and bound may make it (its variance)."""
        upload, sent = one.find(RepresentationUpload), one.find(RepresentationAggregate)
        h = view.encoder(one.weights, knowledge.public_x).mean(0) if upload is None else upload.h
        total, length = ClassShares._residual(view, one, update, knowledge)
        unit = view.lr * view.steps * max(length, torch.finfo(h.dtype).tiny)
        cut = max(0.0, 1 - knowledge.bound.get(ModelUpload, math.inf) / unit)
        variance = (knowledge.std.get(ModelUpload, 0.0) / unit) ** 2 + cut**2
        return torch.softmax(view.own * h + (0 if sent is None else sent.C), -1) - total / view.steps, variance

    @staticmethod
    def _residual(view: View, one: Round, update: Update, knowledge: Knowledge) -> tuple[Tensor, float]:
        """Σ r over the local steps, and by how much a step's residual moves the weights it is read from, less η."""
        structure = view.encoder.structure
        jacobian, factors = one.find(JacobianUpload), one.find(FactorUpload)
        if structure is None:
            zero = knowledge.public_x.new_zeros(view.encoder.num_classes)
            if jacobian is None:
                return zero, 0.0
            J = torch.cat([part.flatten(1) for part in jacobian.jacobian.values()], 1)
            return solved_residual(view.own, update, jacobian.jacobian), view.own * float(J.norm()) / len(J) ** 0.5
        a = activation(view.encoder, jacobian.jacobian) if jacobian is not None else None
        if factors is not None:
            a = factors.activation
        if a is None:
            a = structure.encode(one.weights, lambda W: knowledge.public_x @ W.T).a.mean(0)
        carrier = view.own * a
        if update.compensation:
            own_A = activation(view.encoder, update.compensation)
            assert own_A is not None
            carrier = carrier + own_A
        return structure.split(update.step)[1] @ carrier / carrier.square().sum(), float(carrier.norm())

    def blind(self, knowledge: Knowledge) -> Tensor:
        """The shares among public records."""
        return knowledge.shares()

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """1 − ½ Σ |difference|."""
        return 1 - float((guess.double() - truth.double()).abs().sum()) / 2

    def in_words(self, success: float, read: float) -> str:
        """How far off."""
        return f"the server knows a client's class shares to within {100 * (1 - success):.0f} percentage points"
