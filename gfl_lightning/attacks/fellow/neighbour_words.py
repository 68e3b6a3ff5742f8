"""What the direct neighbours of a client have in common with each other and not with everybody: their words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.decoder import decode
from gfl_lightning.attacks.fellow.received import aggregates, public_numbers, weight_of_others
from gfl_lightning.attacks.knowledge import OwnPlace
from gfl_lightning.attacks.scores import cosine, named
from gfl_lightning.attacks.units import received_units
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import FactorAggregate, JacobianAggregate, RepresentationAggregate


@dataclass(frozen=True)
class NeighbourWords(Attack[OwnPlace]):
    """T_k[m, w] = Σ_{j≠k} Ã_kj s_jm x_jw: a word of a direct neighbour comes and goes with the neighbour's pattern s_j.

    Words of many far clients add up to a constant; words of few near ones vary from unit to unit. So words are ranked
    by the standard deviation of T_k[:, w] over units and rounds (features that are not 0/1: by the mean). Where no T_k
    is sent, C_k, A_k and T_k x_k are decoded by public records to a mean record of the neighbourhood.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> generator = torch.Generator().manual_seed(0)
    >>> encoder = SizedEncoder(MLP((64,)), num_features=40, num_classes=2)
    >>> W, x = encoder.initial_weights(generator), (torch.rand(30, 40, generator=generator) < 0.2).float()
    >>> mixing = torch.tensor([0.3, 0.3, *[0.01] * 28])
    >>> sent = JacobianAggregate(0, torch.func.jacrev(lambda w: mixing @ encoder(w, x))(W))
    >>> known = OwnPlace(x[2:], torch.arange(28) % 2, num_classes=2)
    >>> NeighbourWords().score(NeighbourWords().guess(View.of(encoder, [Round(W, (sent,))]), known), x[:2]) >= 0.9
    True

    Args:
        rounds: how many are used at most.
        words: whether features are 0 or 1, such as words that a paper has.
    """

    rounds: int = 16
    words: bool = True
    adversary: ClassVar[Adversary] = "fellow client"
    aim: ClassVar[str] = "words, or the mean record, of its direct neighbours"
    measure: ClassVar[str] = "of ten words named, the share that some neighbour has (else cosine to their mean record)"
    kinds: ClassVar[Kinds] = (JacobianAggregate, FactorAggregate, RepresentationAggregate)

    def guess(self, view: View, knowledge: OwnPlace) -> Tensor:
        """A number for each feature ``[d]``; the higher, the more surely a neighbour has it."""
        T, seen, phi = [], [], []
        for one in view.first(self.rounds):
            sent = one.find(JacobianAggregate) or one.find(FactorAggregate)
            units = None if sent is None else received_units(view.encoder, one.weights, sent)
            if units is not None:
                T.append(units)
                continue
            numbers = aggregates(one)
            if len(numbers):
                seen.append(numbers)
                phi.append(public_numbers(view.encoder, one, knowledge))
        if T:
            rows = torch.cat(T)
            return rows.std(0) if self.words else rows.mean(0)
        if not seen:
            return self.blind(knowledge)
        total = weight_of_others(view, knowledge)
        noise = knowledge.std.get(RepresentationAggregate, 0.0)
        return decode(torch.cat(phi, 1), knowledge.public_x, torch.cat(seen) / total, noise / total)

    def blind(self, knowledge: OwnPlace) -> Tensor:
        """The mean public record."""
        return knowledge.mean

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Words that some neighbour has; else the cosine to the mean of the neighbours ``[deg, d]``."""
        if self.words:
            return named(guess, (truth > 0).any(0))
        return cosine(guess, truth.mean(0))

    def in_words(self, success: float, read: float) -> str:
        """Words of ten, or the cosine."""
        if self.words:
            return f"a neighbour names {10 * success:.0f} of 10 words"
        return f"a client sees its neighbours' mean record with a cosine of {success:.2f}"
