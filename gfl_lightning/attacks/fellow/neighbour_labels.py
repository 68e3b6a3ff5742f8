"""The classes of a client's neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.calibration import believable
from gfl_lightning.attacks.fellow.received import weight_of_others
from gfl_lightning.attacks.knowledge import OwnPlace
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import RepresentationAggregate


@dataclass(frozen=True)
class NeighbourLabels(Attack[OwnPlace]):
    """softmax(C_k / Σ_{j≠k} Ã_kj) of the last round, times what is guessed without it, as shares.

    C_k = Σ_{j≠k} Ã_kj ĥ_j is what the others' records say of classes; public records, bounded and blurred as theirs,
    tell whether to believe it (`believable`). Without messages the guess is halfway between the client's own label and
    the shares among public records.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder = SizedEncoder(MLP(()), num_features=2, num_classes=2)
    >>> last = Round({"W1": torch.eye(2)}, (RepresentationAggregate(0, torch.tensor([0.0, 9.0])),))
    >>> known = OwnPlace(3 * torch.eye(2).repeat(4, 1), torch.arange(8) % 2, 2, own_label=0)
    >>> NeighbourLabels().guess(View.of(encoder, [last]), known).round()
    tensor([0., 1.])
    """

    adversary: ClassVar[Adversary] = "fellow client"
    aim: ClassVar[str] = "the share of each class among its direct neighbours"
    measure: ClassVar[str] = "1 − total variation distance to the true shares"
    kinds: ClassVar[Kinds] = (RepresentationAggregate,)

    def guess(self, view: View, knowledge: OwnPlace) -> Tensor:
        """Shares ``[c]``."""
        for make in reversed(view.rounds):
            sent = make(view.received).find(RepresentationAggregate)
            if sent is not None:
                total, known = weight_of_others(view, knowledge), knowledge
                h = (sent.C if sent.C.ndim == 1 else sent.C.sum(0)) / total
                public = known.bounded(view.encoder(make(()).weights, known.as_sent), RepresentationAggregate)
                generator = torch.Generator().manual_seed(known.seed)
                noise = torch.randn(public.shape, generator=generator, dtype=public.dtype)
                public = public + known.std.get(RepresentationAggregate, 0.0) / total * noise
                if not believable(public, known.public_y, known.shares()):
                    break
                return F.normalize(torch.softmax(h, -1) * self.blind(known), 1, dim=-1)
        return self.blind(knowledge)

    def blind(self, knowledge: OwnPlace) -> Tensor:
        """Half have the client's own label, the others are as public records are."""
        own = F.one_hot(torch.tensor(knowledge.own_label), knowledge.num_classes).to(knowledge.public_x)
        return (own + knowledge.shares()) / 2

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """1 − ½ Σ |difference|."""
        return 1 - float((guess.double() - truth.double()).abs().sum()) / 2

    def in_words(self, success: float, read: float) -> str:
        """How far off."""
        return f"a client knows its neighbours' class shares to within {100 * (1 - success):.0f} percentage points"
