"""What the direct neighbours of a client have in common with each other and not with everybody: their words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.decoder import decode
from gfl_lightning.attacks.fellow.received import (
    Units,
    public_numbers,
    units_over_rounds,
    unknown_aggregates,
    weight_of_others,
)
from gfl_lightning.attacks.knowledge import OwnPlace
from gfl_lightning.attacks.prior import sharpened, unscaled
from gfl_lightning.attacks.scores import cosine, how_close, named
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import FactorAggregate, JacobianAggregate, RepresentationAggregate

SEVERAL = 0.3
"""How much less a mean of neighbours varies than one does, where their number is not known."""


@dataclass(frozen=True)
class NeighbourWords(Attack[OwnPlace]):
    """T_k[m, w] = Σ_{j≠k} Ã_kj s_jm x_jw: a word of a direct neighbour comes and goes with the neighbour's pattern s_j.

    Words of many far clients add up to a constant; words of few near ones vary from unit to unit. So words are ranked
    by the standard deviation of T_k[:, w] over units and rounds. Features that are not 0/1, and words behind noise, are
    ranked by the mean over units and many rounds, sharpened by what is known of records. Where no T_k is sent, C_k, A_k
    and T_k x_k are decoded by public records to a mean record of the neighbourhood.

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
        rounds: how many are used at most, a dozen times as many where ∇C_k is noisy.
        words: whether features are 0 or 1, such as words that a paper has.
    """

    rounds: int = 4
    words: bool = True
    adversary: ClassVar[Adversary] = "fellow client"
    aim: ClassVar[str] = "words, or the mean record, of its direct neighbours"
    measure: ClassVar[str] = "of ten words named, the share that some neighbour has (else cosine to their mean record)"
    kinds: ClassVar[Kinds] = (JacobianAggregate, FactorAggregate, RepresentationAggregate)

    def guess(self, view: View, knowledge: OwnPlace) -> Tensor:
        """A number for each feature ``[d]``; the higher, the more surely a neighbour has it."""
        units = units_over_rounds(view, knowledge, self.rounds)
        if units:
            noisy = knowledge.disguise or knowledge.std.get(JacobianAggregate, 0.0)
            plain = self.words and not noisy
            return torch.cat([one.rows for one in units]).std(0) if plain else self._mean(view, units, knowledge)
        seen, phi = [], []
        for one in view.first(self.rounds):
            numbers = unknown_aggregates(view.encoder, one, knowledge)
            if len(numbers):
                seen.append(numbers)
                phi.append(public_numbers(view.encoder, one, knowledge))
        if not seen:
            return self.blind(knowledge)
        total = weight_of_others(view, knowledge)
        noise = knowledge.std.get(RepresentationAggregate, 0.0)
        numbers = torch.cat(seen) / total
        return decode(torch.cat(phi, 1), knowledge.public_x, numbers, torch.full_like(numbers, noise / total))

    @staticmethod
    def _mean(view: View, units: list[Units], knowledge: OwnPlace) -> Tensor:
        """T_k[m] / Σ Ã_kj P(s_m = 1) is the mean record of the others, as far as s and x do not hang together."""
        weight = torch.cat([one.precision * one.on for one in units])
        rows = torch.cat([one.precision[:, None] * one.rows for one in units])
        strength = float(weight.square().sum().clamp_min(1e-30))
        total, few = weight_of_others(view, knowledge), SEVERAL
        if len(knowledge.neighbours):
            few = float(knowledge.neighbours.square().sum() / knowledge.neighbours.sum() ** 2)
        x = weight @ rows / strength / total
        std = knowledge.std.get(JacobianAggregate, 0.0)
        noise = std**2 / strength / total**2
        if JacobianAggregate in knowledge.bound:
            x, noise = unscaled(x, noise, knowledge.mean + few**0.5 * (knowledge.public_x - knowledge.mean))
        return sharpened(x, noise + few * knowledge.disguise**2, knowledge.public_x, few)

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
            return f"of ten words that a client names, {10 * success:.0f} are its neighbours'"
        return f"a client knows its neighbours' mean record {how_close(success)}"
