"""The record of a client with one sample, from its Jacobian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.scores import cosine
from gfl_lightning.attacks.units import uploaded_units
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import FactorUpload, JacobianUpload, RepresentationUpload


@dataclass(frozen=True)
class RankOne(Attack[Knowledge]):
    """∂h_o/∂W1[m,:] = W2[o,m] s_m x: every row is the sample, so that the direction of x is read off, exactly.

    Under noise the rows are added up over units and rounds, each with its precision: x̂ = Σ_t Σ_m p_tm² s_tm U_t[m],
    first with all s = 1, then with s = 1{W̄1 x̂ > 0}. Noise is new in every round, the sample is not. For other encoders
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
        rounds: how many are used at most.
    """

    refinements: int = 6
    rounds: int = 48
    adversary: ClassVar[Adversary] = "server"
    aim: ClassVar[str] = "the record of a client with one sample, from ∇ĥ_j"
    measure: ClassVar[str] = "cosine to the record"
    kinds: ClassVar[Kinds] = (JacobianUpload, FactorUpload)
    helpful: ClassVar[Kinds] = (RepresentationUpload,)

    def guess(self, view: View, knowledge: Knowledge) -> Tensor:
        """x̂ up to its scale ``[d]``."""
        seen, first, representation = [], [], None
        for one in view.first(self.rounds):
            message = one.find(JacobianUpload) or one.find(FactorUpload)
            if message is None:
                continue
            if isinstance(message, FactorUpload) and message.direction is not None:
                return message.direction
            found = uploaded_units(view.encoder, one.weights, message)
            if found is not None:
                seen.append(found)
                first.append(one)
                upload = one.find(RepresentationUpload)
                representation = representation if upload is None else upload.h
        if not seen:
            return self.blind(knowledge)
        structure = view.encoder.structure
        if structure is None:
            return self._singular(view, torch.cat([rows for rows, _ in seen]), first[-1].weights, representation)
        x = torch.stack([(precision.square()[:, None] * rows).sum(0) for rows, precision in seen]).sum(0)
        for _ in range(self.refinements):
            total = torch.zeros_like(x)
            for (rows, precision), one in zip(seen, first, strict=True):
                on = structure.split(one.weights)[0] @ x > 0
                total += ((precision.square() * on)[:, None] * rows).sum(0)
            if not bool(total.any()):
                break
            x = total
        return x

    @staticmethod
    def _singular(view: View, rows: Tensor, weights: dict[str, Tensor], h: Tensor | None) -> Tensor:
        """The first right singular vector, with the sign whose representation is nearer to ĥ."""
        v = torch.linalg.svd(rows, full_matrices=False).Vh[0]
        if h is None:
            return v
        sides = torch.stack([v, -v])
        return sides[int(F.cosine_similarity(view.encoder(weights, sides), h[None]).argmax())]

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
        return f"the server comes close to a record (cosine {success:.2f})"
