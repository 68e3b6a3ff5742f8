"""The record of a training client with one sample, from its model update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.scores import cosine
from gfl_lightning.attacks.server.updates import Split, Update, leading_pair, split_rank_one, updates_of
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import JacobianAggregate, ModelUpload


@dataclass(frozen=True)
class UpdateSample(Attack[Knowledge]):
    """−ΔW1/η = (Σ_i δ_i) xᵀ + Σ_o R_o ∇C_k[o]: without the server's own ∇C_k it has rank one, and x is its row.

    In V1 nothing need be taken away. Holds for every encoder that meets its features as W x. The sign of x is that for
    which δ has the sign of W̄2ᵀ Σ r (structured encoder), or for which more of x is positive.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder = SizedEncoder(MLP((16,)), num_features=4, num_classes=2)
    >>> W, x = encoder.initial_weights(torch.Generator().manual_seed(0)), torch.tensor([1.0, 0.0, 2.0, 0.5])
    >>> loss = lambda w: torch.nn.functional.cross_entropy(encoder(w, x), torch.tensor(1))
    >>> after = {name: W[name] - 0.1 * g for name, g in torch.func.grad(loss)(W).items()}
    >>> view = View.of(encoder, [Round(W, (ModelUpload(0, after),))], lr=0.1)
    >>> public = Knowledge(torch.eye(4), torch.tensor([0, 1, 0, 1]), num_classes=2)
    >>> UpdateSample().score(UpdateSample().guess(view, public), x) > 0.999
    True

    Args:
        iterations: of least squares by turns.
        rounds: how many are used at most.
    """

    iterations: int = 60
    rounds: int = 2
    adversary: ClassVar[Adversary] = "server"
    aim: ClassVar[str] = "the record of a training client with one sample, from W_k − W̄"
    measure: ClassVar[str] = "cosine to the record"
    kinds: ClassVar[Kinds] = (ModelUpload,)
    helpful: ClassVar[Kinds] = (JacobianAggregate,)

    def applies(self, view: View) -> bool:
        """Whether a weight meets the features alone."""
        return super().applies(view) and view.encoder.encoder.feature_weight is not None

    def guess(self, view: View, knowledge: Knowledge) -> Tensor:
        """x̂ ``[d]`` up to its scale."""
        total = torch.zeros_like(knowledge.mean)
        for one, update in updates_of(view, self.rounds):
            parts = self.split(view, update)
            v = parts.v * self._sign(view, one.weights, parts, update)
            total = total + (v if not bool(total.any()) or float(v @ total) > 0 else -v)
        return total if bool(total.any()) else self.blind(knowledge)

    def split(self, view: View, update: Update) -> Split:
        """The parts of the feature weight's step."""
        name = view.encoder.encoder.feature_weight
        assert name is not None
        if update.compensation:
            return split_rank_one(update.step[name], update.compensation[name], self.iterations)
        u, v = leading_pair(update.step[name])
        return Split(torch.zeros(view.encoder.num_classes), u, v)

    @staticmethod
    def _sign(view: View, weights: dict[str, Tensor], parts: Split, update: Update) -> float:
        structure = view.encoder.structure
        if structure is None:
            return 1.0 if float(parts.v.pow(3).sum()) >= 0 else -1.0
        _, W2 = structure.split(weights)
        R = parts.residual if update.compensation else structure.split(update.step)[1].sum(1)
        return 1.0 if float(parts.u @ (R @ W2)) >= 0 else -1.0

    def blind(self, knowledge: Knowledge) -> Tensor:
        """The mean public record."""
        return knowledge.mean

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Cosine."""
        return cosine(guess, truth)

    def in_words(self, success: float, read: float) -> str:
        """How many are read, or how close it comes."""
        if read > 0.995:
            return "the server reads every training client's record"
        if read > 0.05:
            return f"the server reads {100 * read:.0f} of 100 training client's records"
        return f"the server comes close to a training client's record (cosine {success:.2f})"
