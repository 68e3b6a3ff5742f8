"""The record of a client with one sample, from its Jacobian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.prior import sharpened, unscaled
from gfl_lightning.attacks.scores import cosine, how_close
from gfl_lightning.attacks.units import multiples, uploaded_units
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import FactorUpload, JacobianUpload


@dataclass(frozen=True)
class RankOne(Attack[Knowledge]):
    """∂h_o/∂W1[m,:] = W2[o,m] s_m x: every row is the sample, so that the direction of x is read off, exactly.

    One round is enough without noise. Under noise the rows are averaged over units and rounds, each with its
    precision: x̂ = Σ_t Σ_m p_tm² s_tm U_t[m] / Σ p_tm² s_tm, first with all s = 1, then with s = 1{W̄1 x̂ > 0}. Noise is
    new in every round, the sample is not. What is known of records sharpens what is left blurred. For other encoders
    that meet their features as W x, x̂ is the first right singular vector of all rows.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder = SizedEncoder(MLP((16,)), num_features=4, num_classes=2)
    >>> W, x = encoder.initial_weights(torch.Generator().manual_seed(0)), torch.tensor([1.0, 0.0, -2.0, 0.5])
    >>> upload = JacobianUpload(0, torch.func.jacrev(lambda w: encoder(w, x))(W))
    >>> view = View.of(encoder, [Round(W, (upload,))])
    >>> public = Knowledge(torch.eye(4), torch.tensor([0, 1, 0, 1]), num_classes=2)
    >>> RankOne().score(RankOne().guess(view, public), x) > 0.999
    True

    Args:
        refinements: how often the patterns are taken from the guess.
        rounds: how many with a Jacobian are used at most under noise.
    """

    refinements: int = 6
    rounds: int = 48
    adversary: ClassVar[Adversary] = "server"
    aim: ClassVar[str] = "the record of a client with one sample, from ∇ĥ_j"
    measure: ClassVar[str] = "cosine to the record"
    kinds: ClassVar[Kinds] = (JacobianUpload, FactorUpload)

    def guess(self, view: View, knowledge: Knowledge) -> Tensor:
        """x̂ ``[d]``, for other encoders up to its scale."""
        x, variance = self.reading(view, knowledge)
        if knowledge.std.get(JacobianUpload, 0.0):
            x, variance = unscaled(x, variance, knowledge.as_sent)
        return sharpened(x, variance + knowledge.disguise**2, knowledge.public_x)

    def reading(self, view: View, knowledge: Knowledge) -> tuple[Tensor, float]:
        """The record as it was sent ``[d]``, and the variance of the noise that the uploads leave in each feature."""
        seen, first = [], []
        enough = self.rounds if knowledge.std.get(JacobianUpload, 0.0) else 1
        for one in view:
            message = one.find(JacobianUpload) or one.find(FactorUpload)
            if message is None:
                continue
            if isinstance(message, FactorUpload) and message.direction is not None:
                return message.direction, 0.0
            found = uploaded_units(view.encoder, one.weights, message)
            if found is not None:
                seen.append(found)
                first.append(one)
            if len(seen) == enough:
                break
        if not seen:
            return self.blind(knowledge), torch.inf
        structure = view.encoder.structure
        if structure is None:
            rows = torch.cat([rows for rows, _ in seen])
            return self._singular(view, rows, first[-1].weights, knowledge), 0.0
        W1 = [structure.split(one.weights)[0] for one in first]
        on = [torch.ones_like(precision) for _, precision in seen]
        x, weight = self._mean(seen, on)
        for _ in range(self.refinements):
            on = [(w @ x > 0).to(x) for w in W1]
            total, more = self._mean(seen, on)
            if not bool(total.any()):
                break
            x, weight = total, more
        return x, knowledge.std.get(JacobianUpload, 0.0) ** 2 / weight

    @staticmethod
    def _mean(seen: list[tuple[Tensor, Tensor]], on: list[Tensor]) -> tuple[Tensor, float]:
        """The mean of the rows that are on, and the sum of their weights p²."""
        weights = [precision.square() * some for (_, precision), some in zip(seen, on, strict=True)]
        total = max(float(sum(weight.sum() for weight in weights)), 1e-30)
        rows = sum((weight @ units for weight, (units, _) in zip(weights, seen, strict=True)), torch.zeros(()))
        return rows / total, total

    @staticmethod
    def _singular(view: View, rows: Tensor, weights: dict[str, Tensor], knowledge: Knowledge) -> Tensor:
        """The first right singular vector, of the length of records; rows hold x as often as they do of public ones."""
        v = torch.linalg.svd(rows, full_matrices=False).Vh[0]
        held = multiples(view.encoder, weights, knowledge.public_x)
        towards = rows.sum(0) if held is None else held.repeat(len(rows) // len(held)) @ rows
        length = knowledge.as_sent.norm(dim=1).mean()
        return length * (v if float(v @ towards) >= 0 else -v)

    def blind(self, knowledge: Knowledge) -> Tensor:
        """The mean public record."""
        return knowledge.mean

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Cosine."""
        return cosine(guess, truth)

    def in_words(self, success: float, read: float) -> str:
        """How many are read, or how close it comes."""
        if read > 0.995:
            return "the server reads every record"
        if read > 0.05:
            return f"the server reads {100 * read:.0f} of 100 records"
        return f"the server knows a record {how_close(success)}"
