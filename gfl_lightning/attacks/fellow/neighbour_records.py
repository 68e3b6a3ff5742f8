"""The records of single neighbours, from the mixture that a client receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.factorise import factorise
from gfl_lightning.attacks.fellow.received import units_over_rounds
from gfl_lightning.attacks.knowledge import OwnPlace
from gfl_lightning.attacks.prior import trust
from gfl_lightning.attacks.scores import how_close, matched
from gfl_lightning.attacks.units import received_units
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import FactorAggregate, JacobianAggregate

ABOVE = 1.05
"""How far above the usual largest singular value of noise one counts, which varies by some hundredths."""


@dataclass(frozen=True)
class NeighbourRecords(Attack[OwnPlace]):
    """T_k over R rounds, stacked ``[R m, d]``, = S X: rows of X are Ã_kj x_j, columns of S the patterns s_j.

    Patterns are never negative and differ between clients, so that a factorisation with S ≥ 0 (and X ≥ 0 for words)
    separates the neighbours, all rounds being solved at once; a few more factors take up the far clients, those of them
    aside whose records and places are known, which are taken out. Who knows the graph knows how many neighbours
    there are; who does not tries a fixed number of factors. Which factor is which neighbour is not asked: each
    neighbour is compared with the factor that suits it best, and guessing gets as many tries. Rows of which no singular
    value is above those of noise, σ (√rows + √d), say nothing; factors that are randomised records move what would be
    guessed without them, as far as they can be trusted.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> generator = torch.Generator().manual_seed(0)
    >>> encoder = SizedEncoder(MLP((64,)), num_features=60, num_classes=2)
    >>> W, x = encoder.initial_weights(generator), (torch.rand(30, 60, generator=generator) < 0.25).float()
    >>> mixing = torch.tensor([0.3, 0.2, *[0.004] * 28])
    >>> sent = JacobianAggregate(0, torch.func.jacrev(lambda w: mixing @ encoder(w, x))(W))
    >>> known = OwnPlace(x[2:], torch.arange(28) % 2, num_classes=2, neighbours=mixing[:2])
    >>> attack = NeighbourRecords()
    >>> attack.score(attack.guess(View.of(encoder, [Round(W, (sent,))]), known), x[:2]) >= 0.9
    True

    Args:
        rounds: how many are used at most, a dozen times as many where ∇C_k is noisy.
        extra: factors beyond the neighbours.
        unknown: factors where the number of neighbours is not known.
        words: whether features are 0 or 1, such as words that a paper has.
    """

    rounds: int = 4
    extra: int = 8
    unknown: int = 12
    words: bool = True
    adversary: ClassVar[Adversary] = "fellow client"
    aim: ClassVar[str] = "the record of each direct neighbour, told apart"
    measure: ClassVar[str] = "of ten words named of a neighbour, the share that it has (else cosine to its mean record)"
    kinds: ClassVar[Kinds] = (JacobianAggregate, FactorAggregate)

    def applies(self, view: View) -> bool:
        """Whether T_k reaches the client: under the Gram protocol it does where the client has several samples."""
        first = next((one for one in view.only(*self.kinds) if one.messages), None)
        sent = None if first is None else first.find(JacobianAggregate) or first.find(FactorAggregate)
        return first is not None and sent is not None and received_units(view.encoder, first.weights, sent) is not None

    def guess(self, view: View, knowledge: OwnPlace) -> Tensor:
        """A record for each factor ``[factors, d]``, up to scale."""
        units = units_over_rounds(view.only(*self.kinds), knowledge, self.rounds)
        if not units:
            return self.blind(knowledge)
        precision = torch.cat([one.precision for one in units])
        std = knowledge.std.get(JacobianAggregate, 0.0)
        if not std:
            precision = torch.ones_like(precision)
        rows = precision[:, None] / precision.mean() * torch.cat([one.rows for one in units])
        noise = std / float(precision.mean()) * (len(rows) ** 0.5 + rows.shape[1] ** 0.5)
        blind = self.blind(knowledge)
        if float(torch.linalg.matrix_norm(rows, 2)) <= ABOVE * noise:
            return blind
        generator = torch.Generator().manual_seed(knowledge.seed)
        found = factorise(rows, self._factors(knowledge), self.words and not knowledge.disguise, generator)
        if not knowledge.disguise:
            return found
        records = F.normalize(found, dim=1) * knowledge.as_sent.norm(dim=1).mean()
        return blind + trust(knowledge.disguise**2, knowledge.public_x) * (records - blind)

    def _factors(self, knowledge: OwnPlace) -> int:
        return len(knowledge.neighbours) + self.extra if len(knowledge.neighbours) else self.unknown

    def blind(self, knowledge: OwnPlace) -> Tensor:
        """The mean public record, and other public records up to the same number of tries."""
        return torch.cat([knowledge.mean[None], knowledge.draw(self._factors(knowledge) - 1)])

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Mean over neighbours ``[deg, d]``."""
        return matched(guess, truth, self.words)

    def in_words(self, success: float, read: float) -> str:
        """Words of ten, or the cosine."""
        if self.words:
            return f"of ten words that a client names of each single neighbour, {10 * success:.0f} are right"
        return f"a client knows the mean record of each neighbour {how_close(success)}"
