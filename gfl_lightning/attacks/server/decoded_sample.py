"""The record of a client from its representations alone, with a decoder learned on public records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.decoder import decode
from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.scores import cosine
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import RepresentationUpload


@dataclass(frozen=True)
class DecodedSample(Attack[Knowledge]):
    """x̂ = x̄ + D (ĥ_j over the rounds − its mean): c numbers a round, and W̄ moves.

    What V1 still shares, and the first of two servers sees.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder = SizedEncoder(MLP(()), num_features=2, num_classes=2)
    >>> W, x = {"W1": torch.tensor([[1.0, 2.0], [0.0, 1.0]])}, torch.tensor([1.0, 3.0])
    >>> view = View.of(encoder, [Round(W, (RepresentationUpload(0, encoder(W, x)),))])
    >>> public = Knowledge(torch.tensor([[0.0, 1], [1, 0], [2, 1], [1, 2], [3, 3]]), torch.arange(5) % 2, 2)
    >>> attack = DecodedSample()
    >>> attack.score(attack.guess(view, public), x) > 0.99
    True

    Args:
        rounds: how many are used at most.
    """

    rounds: int = 64
    adversary: ClassVar[Adversary] = "server"
    aim: ClassVar[str] = "the mean record of a client, from ĥ_j"
    measure: ClassVar[str] = "cosine to the mean record"
    kinds: ClassVar[Kinds] = (RepresentationUpload,)

    def guess(self, view: View, knowledge: Knowledge) -> Tensor:
        """x̂ ``[d]``."""
        phi, observed = [], []
        for one in view.first(self.rounds):
            upload = one.find(RepresentationUpload)
            if upload is not None:
                phi.append(view.encoder(one.weights, knowledge.public_x))
                observed.append(upload.h)
        if not phi:
            return self.blind(knowledge)
        noise = knowledge.std.get(RepresentationUpload, 0.0)
        return decode(torch.cat(phi, 1), knowledge.public_x, torch.cat(observed), noise)

    def blind(self, knowledge: Knowledge) -> Tensor:
        """The mean public record."""
        return knowledge.mean

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Cosine."""
        return cosine(guess, truth)

    def in_words(self, success: float, read: float) -> str:
        """The cosine."""
        return f"the server sees a client's mean record with a cosine of {success:.2f}"
