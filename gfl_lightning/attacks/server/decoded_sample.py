"""The mean record of a client: decoded from its representations, or read off its Jacobians where it has several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.decoder import decode
from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.prior import sharpened, unscaled
from gfl_lightning.attacks.scores import cosine, how_close
from gfl_lightning.attacks.units import multiples, uploaded_units
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import FactorUpload, JacobianUpload, RepresentationUpload


@dataclass(frozen=True)
class DecodedSample(Attack[Knowledge]):
    """x̂ = x̄ + D (φ_j − φ̄) with φ_j = ĥ_j over the rounds: c numbers a round, and W̄ moves.

    What V1 still shares, and the first of two servers sees. Where a client with several samples sends ∇ĥ_j, its rows
    are multiples of samples, about the same multiples of all: their mean is the mean record (a client with one sample
    gives it away: `RankOne`).

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
        with_jacobians: how many with a Jacobian.
    """

    rounds: int = 64
    with_jacobians: int = 32
    adversary: ClassVar[Adversary] = "server"
    aim: ClassVar[str] = "the mean record of a client, from ĥ_j, or from ∇ĥ_j where it has several samples"
    measure: ClassVar[str] = "cosine to the mean record"
    kinds: ClassVar[Kinds] = (RepresentationUpload, JacobianUpload, FactorUpload)

    def guess(self, view: View, knowledge: Knowledge) -> Tensor:
        """x̂ ``[d]``."""
        if knowledge.samples > 1:
            mean = self._off_jacobians(view, knowledge)
            if mean is not None:
                return mean
        phi, observed = [], []
        for one in view.only(RepresentationUpload).first(self.rounds):
            upload = one.find(RepresentationUpload)
            if upload is not None:
                phi.append(knowledge.bounded(view.encoder(one.weights, knowledge.as_sent), RepresentationUpload))
                observed.append(upload.h)
        if not phi:
            return self.blind(knowledge)
        numbers = torch.cat(observed)
        noise = torch.full_like(numbers, knowledge.std.get(RepresentationUpload, 0.0))
        return decode(torch.cat(phi, 1), knowledge.public_x, numbers, noise)

    def _off_jacobians(self, view: View, knowledge: Knowledge) -> Tensor | None:
        """Σ w_r J_r / Σ w_r w̄_r over rows and rounds, with w_r as precise and as often x as row r is."""
        total, strength, noise = torch.zeros_like(knowledge.mean), 0.0, 0.0
        for one in view.only(JacobianUpload, FactorUpload).spread(self.with_jacobians):
            message = one.find(JacobianUpload) or one.find(FactorUpload)
            found = None if message is None else uploaded_units(view.encoder, one.weights, message)
            held = None if found is None else multiples(view.encoder, one.weights, knowledge.public_x)
            if found is not None and held is not None:
                rows, precision = found
                weight = precision.square() * held
                total = total + weight @ rows
                strength, noise = strength + float(weight @ held), noise + float((weight / precision).square().sum())
        if not strength:
            return None
        std, few = knowledge.std.get(JacobianUpload, 0.0), 1 / knowledge.samples
        x, variance = total / strength, std**2 * noise / strength**2
        if std:
            means = knowledge.mean + few**0.5 * (knowledge.public_x - knowledge.mean)
            x, variance = unscaled(x, variance, means)
        return sharpened(x, variance + few * knowledge.disguise**2, knowledge.public_x, few)

    def blind(self, knowledge: Knowledge) -> Tensor:
        """The mean public record."""
        return knowledge.mean

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Cosine."""
        return cosine(guess, truth)

    def in_words(self, success: float, read: float) -> str:
        """How close it comes."""
        return f"the server knows a client's mean record {how_close(success)}"
