"""A property of a neighbourhood, from the final model and a public record in its middle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.calibration import believable
from gfl_lightning.attacks.decoder import decode
from gfl_lightning.attacks.knowledge import OwnPlace
from gfl_lightning.attacks.views import Kinds, View


@dataclass(frozen=True)
class NeighbourhoodClass(Attack[OwnPlace]):
    """argmax Ψ_h(x_k; W̄): the class that the model sees in a record is the one it learned for its neighbourhood.

    The outsider knows the record x_k and asks which class is most frequent among k's direct neighbours. Without the
    model, or with one that public labels do not bear out (`believable`), it classifies x_k by ridge regression on
    public records.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder = SizedEncoder(MLP(()), num_features=2, num_classes=2)
    >>> known = OwnPlace(torch.eye(2), torch.tensor([0, 1]), 2, own_x=torch.tensor([[0.0, 1.0]]))
    >>> NeighbourhoodClass().guess(View.of(encoder, [Round({"W1": torch.eye(2)})]), known)
    tensor(1)
    """

    adversary: ClassVar[Adversary] = "outsider"
    aim: ClassVar[str] = "the most frequent class among the neighbours of a client whose record it knows"
    measure: ClassVar[str] = "share of right answers"
    kinds: ClassVar[Kinds] = ()

    def guess(self, view: View, knowledge: OwnPlace) -> Tensor:
        """A class, by the last model in view."""
        last = view.rounds[-1](view.received)
        h = view.encoder(last.weights, torch.cat([knowledge.public_x, knowledge.own_x]))
        public, own = h[: len(knowledge.public_x)], h[len(knowledge.public_x) :].mean(0)
        return own.argmax() if believable(public, knowledge.public_y, knowledge.shares()) else self.blind(knowledge)

    def blind(self, knowledge: OwnPlace) -> Tensor:
        """By public records."""
        y = F.one_hot(knowledge.public_y, knowledge.num_classes).to(knowledge.public_x)
        return decode(knowledge.public_x, y, knowledge.own_x.mean(0)).argmax()

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Right or wrong."""
        return float(int(guess) == int(truth))

    def in_words(self, success: float, read: float) -> str:
        """The share."""
        return f"an outsider names the class of the neighbours of {100 * success:.0f} of 100 clients it knows"
