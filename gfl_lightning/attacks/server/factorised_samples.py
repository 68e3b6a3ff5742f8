"""The samples of a client with several, by factorising what it uploaded in all rounds at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.factorise import factorise
from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.scores import share_read
from gfl_lightning.attacks.units import uploaded_units
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import FactorUpload, JacobianUpload


@dataclass(frozen=True)
class FactorisedSamples(Attack[Knowledge]):
    """n U_t = S_t X for all rounds t, stacked ``[R m, d]``, with S_t = 1{W̄1 Xᵀ > 0} ≥ 0: X is what all rounds share.

    A factorisation with S ≥ 0 (and X ≥ 0 where public records are) gives a first X; then the patterns follow from X and
    X from the patterns, by turns, and the X that explains the uploads best is kept. It needs no rounds that follow each
    other, as `FlippedUnits` does, but fewer samples than rounds tell apart.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> generator = torch.Generator().manual_seed(0)
    >>> encoder, x = SizedEncoder(MLP((32,)), 6, 2), torch.randn(2, 6, generator=generator)
    >>> starts = [encoder.initial_weights(generator) for _ in range(4)]
    >>> jacobian = torch.func.jacrev(lambda w: encoder(w, x).mean(0))
    >>> view = View.of(encoder, [Round(W, (JacobianUpload(0, jacobian(W)),)) for W in starts])
    >>> public = Knowledge(torch.randn(9, 6, generator=generator), torch.arange(9) % 2, 2, samples=2)
    >>> FactorisedSamples().score(FactorisedSamples().guess(view, public), x)
    1.0

    Args:
        rounds: how many are used, spread over those in view.
        turns: of patterns and samples.
        starts: of the factorisation.
    """

    rounds: int = 12
    turns: int = 40
    starts: int = 2
    adversary: ClassVar[Adversary] = "server"
    aim: ClassVar[str] = "the samples of a client with several, from its mean Jacobians of all rounds at once"
    measure: ClassVar[str] = "share of samples read (cosine ≥ 0.95)"
    kinds: ClassVar[Kinds] = (JacobianUpload, FactorUpload)

    def applies(self, view: View) -> bool:
        """Whether patterns can be told: for the two-layer ReLU encoder."""
        return view.encoder.structure is not None and super().applies(view)

    def guess(self, view: View, knowledge: Knowledge) -> Tensor:
        """Samples ``[n, d]``, scaled as they are."""
        structure = view.encoder.structure
        assert structure is not None
        W1, U = [], []
        for one in view.spread(self.rounds):
            message = one.find(JacobianUpload) or one.find(FactorUpload)
            found = None if message is None else uploaded_units(view.encoder, one.weights, message)
            if found is not None:
                W1.append(structure.split(one.weights)[0])
                U.append(knowledge.samples * found[0])
        if not U:
            return knowledge.public_x[:0]
        W, total = torch.cat(W1), torch.cat(U)
        positive = bool((knowledge.public_x >= 0).all())
        best, least = knowledge.public_x[:0], torch.inf
        for start in range(self.starts):
            generator = torch.Generator().manual_seed(knowledge.seed + start)
            X = factorise(total, knowledge.samples, positive, generator)
            for _ in range(self.turns):
                S = (W @ X.T > 0).to(X)
                gram = S.T @ S
                ridge = 1e-6 * (1 + gram.diagonal().mean()) * torch.eye(len(X), dtype=X.dtype)
                X = torch.linalg.solve(gram + ridge, S.T @ total)
                error = float((total - S @ X).square().sum())
                if error < least:
                    best, least = X, error
        return best

    def blind(self, knowledge: Knowledge) -> Tensor:
        """As many public records."""
        return knowledge.draw(knowledge.samples)

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Share of the samples that some guess is close to."""
        return share_read(guess, truth)

    def in_words(self, success: float, read: float) -> str:
        """The share."""
        return f"the server reads {100 * success:.0f} of 100 samples of a client that shares the mean of several"
