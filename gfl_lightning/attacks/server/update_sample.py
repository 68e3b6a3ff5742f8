"""The record of a training client with one sample, from its model update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.prior import sharpened
from gfl_lightning.attacks.scores import cosine, how_close
from gfl_lightning.attacks.server.updates import Split, Update, leading_pair, split_rank_one, updates_of
from gfl_lightning.attacks.units import multiples
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import JacobianAggregate, ModelUpload


@dataclass(frozen=True)
class UpdateSample(Attack[Knowledge]):
    """−ΔW1/η = (Σ_i δ_i) xᵀ + Σ_o R_o ∇C_k[o]: without the server's own ∇C_k it has rank one, and x is its row.

    In V1 nothing need be taken away. Holds for every encoder that meets its features as W x. The sign of x is that for
    which δ has the sign of W̄2ᵀ Σ r, or of what the Jacobians of public records make of Σ r; where Σ r is not known,
    that for which more of x is positive. What is known of records sharpens a direction that noise blurs.

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
    measure: ClassVar[str] = "cosine to the record, up to its sign"
    kinds: ClassVar[Kinds] = (ModelUpload,)
    helpful: ClassVar[Kinds] = (JacobianAggregate,)

    def applies(self, view: View) -> bool:
        """Whether a weight meets the features alone."""
        return super().applies(view) and view.encoder.encoder.feature_weight is not None

    def guess(self, view: View, knowledge: Knowledge) -> Tensor:
        """x̂ ``[d]``, of the usual length of records."""
        total, clear = torch.zeros_like(knowledge.mean), []
        for one, update in updates_of(view, self.rounds):
            parts = self.split(view, update)
            v = parts.v * self._sign(view, one.weights, parts, update, knowledge)
            clear.append(self._clear(view, parts, knowledge))
            total = total + clear[-1] * (v if not bool(total.any()) or float(v @ total) > 0 else -v)
        if not bool(total.any()):
            return self.blind(knowledge)
        clarity = sum(clear) / len(clear)
        length = float(knowledge.as_sent.square().sum(1).mean() / clarity)
        noise = (1 - clarity) * length / len(total) + knowledge.disguise**2
        return sharpened(total / total.norm() * length**0.5, noise, knowledge.public_x)

    @staticmethod
    def _clear(view: View, parts: Split, knowledge: Knowledge) -> float:
        """The share of ‖u vᵀ‖² that is not noise: the best u vᵀ of noise on W_k alone is σ/η (√m + √d) long."""
        edge = knowledge.std.get(ModelUpload, 0.0) / view.lr * (len(parts.u) ** 0.5 + len(parts.v) ** 0.5)
        return max(0.0, 1 - (edge / max(float(parts.u.norm()), torch.finfo(parts.u.dtype).tiny)) ** 2)

    def split(self, view: View, update: Update) -> Split:
        """The parts of the feature weight's step."""
        name = view.encoder.encoder.feature_weight
        assert name is not None
        if update.compensation:
            return split_rank_one(update.step[name], update.compensation[name], self.iterations)
        u, v = leading_pair(update.step[name])
        return Split(torch.zeros(view.encoder.num_classes), u, v)

    @staticmethod
    def _sign(view: View, weights: dict[str, Tensor], parts: Split, update: Update, knowledge: Knowledge) -> float:
        structure = view.encoder.structure
        if structure is not None:
            _, W2 = structure.split(weights)
            R = parts.residual if update.compensation else structure.split(update.step)[1].sum(1)
            return 1.0 if float(parts.u @ (R @ W2)) >= 0 else -1.0
        held = multiples(view.encoder, weights, knowledge.public_x)
        if held is None or not update.compensation:
            return 1.0 if float(parts.v.pow(3).sum()) >= 0 else -1.0
        return 1.0 if float(parts.u @ (parts.residual @ held.view(len(parts.residual), -1))) >= 0 else -1.0

    def blind(self, knowledge: Knowledge) -> Tensor:
        """The mean public record."""
        return knowledge.mean

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Cosine, of the record or of its opposite."""
        return max(cosine(guess, truth), cosine(-guess, truth))

    def in_words(self, success: float, read: float) -> str:
        """How many are read, or how close it comes."""
        if read > 0.995:
            return "the server reads every training client's record"
        if read > 0.05:
            return f"the server reads {100 * read:.0f} of 100 training clients' records"
        return f"the server knows a training client's record {how_close(success)}"
