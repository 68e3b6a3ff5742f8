"""Membership of a record in the training data, from the final model alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.knowledge import Shadows
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights

LEAST = 1e-3


@dataclass(frozen=True)
class ShadowMembership(Attack[Shadows]):
    """φ(W̄) = log p_y/(1 − p_y) with p = softmax Ψ_h(x; W̄); a likelihood-ratio test between shadows with x and without.

    Federations that the adversary trained itself give φ's mean in either case and its deviation; guess 1 where φ of the
    model at hand is likelier with x, as many shadows being compared of each kind. The outsider knows no neighbour's
    representation, so it judges by h alone.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder, x = SizedEncoder(MLP(()), 2, 2), torch.tensor([1.0, 0.0])
    >>> model = lambda sure: {"W1": torch.tensor([[sure, 0.0], [0.0, 0.0]])}
    >>> known = Shadows(
    ...     torch.eye(2), torch.tensor([0, 1]), 2, record=x, label=0,
    ...     models=(model(3.0), model(2.8), model(1.0), model(1.1)), member=(True, True, False, False),
    ... )
    >>> ShadowMembership().guess(View.of(encoder, [Round(model(2.9))]), known)
    tensor(1)
    """

    adversary: ClassVar[Adversary] = "outsider"
    aim: ClassVar[str] = "whether a record was trained on"
    measure: ClassVar[str] = "share of right answers, half of them yes"
    kinds: ClassVar[Kinds] = ()

    def guess(self, view: View, knowledge: Shadows) -> Tensor:
        """0 or 1, by the last model in view."""
        last = view.rounds[-1](view.received)
        seen = self._statistic(view.encoder, last.weights, knowledge)
        phi = torch.stack([self._statistic(view.encoder, W, knowledge) for W in knowledge.models])
        member = torch.tensor(knowledge.member)
        if not bool(member.any()) or bool(member.all()):
            return self.blind(knowledge)
        inside, outside = phi[member], phi[~member]
        fewer = min(len(inside), len(outside))  # the mean of more is nearer to anything
        inside, outside = inside[:fewer], outside[:fewer]
        spread = torch.cat([inside - inside.mean(), outside - outside.mean()]).std().clamp_min(LEAST)
        ratio = ((seen - outside.mean()) / spread).square() - ((seen - inside.mean()) / spread).square()
        return (ratio > 0).long()

    @staticmethod
    def _statistic(encoder: SizedEncoder, weights: Weights, knowledge: Shadows) -> Tensor:
        logits = encoder(weights, knowledge.record)
        others = torch.cat([logits[: knowledge.label], logits[knowledge.label + 1 :]])
        return logits[knowledge.label] - torch.logsumexp(others, 0)

    def blind(self, knowledge: Shadows) -> Tensor:
        """Always yes, which is right half of the time."""
        return torch.tensor(1)

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Right or wrong."""
        return float(int(guess) == int(truth))

    def in_words(self, success: float, read: float) -> str:
        """The share."""
        return f"an outsider tells in {100 * success:.0f} of 100 cases whether a record was trained on"
