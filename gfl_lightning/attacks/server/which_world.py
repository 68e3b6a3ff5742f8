"""Membership of a record: which of two data sets a client holds, by a likelihood-ratio test on its uploads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.knowledge import TwoWorlds
from gfl_lightning.attacks.server.read_records import records_read
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import FactorUpload, JacobianUpload, Message, RepresentationUpload

SURE = 100.0


@dataclass(frozen=True)
class WhichWorld(Attack[TwoWorlds]):
    """Λ = Σ (‖u − u_0‖² − ‖u − u_1‖²) / 2σ² over uploads u, with u_i what is uploaded in world i; guess 1 if Λ > 0.

    The adversary of differential privacy: it knows all but one record of the client, and both candidates for that one.
    Where noise is Gaussian no other test on these uploads is better, so its errors bound ε from below.

    Where records were replaced before anything was sent, uploads are those of other records than the candidates. What
    the server reads off them (`records_read`) is compared instead: randomised records z by Λ = log Σ_z e^{⟨z, x_1⟩/s²}
    − log Σ_z e^{⟨z, x_0⟩/s²} (candidates of one length), turned ones by their angles to records that are known.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder = SizedEncoder(MLP(()), num_features=2, num_classes=2)
    >>> W, worlds = {"W1": torch.eye(2)}, (torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    >>> program = lambda w, x: (RepresentationUpload(0, encoder(w, x).mean(0)),)
    >>> known = TwoWorlds(torch.eye(2), torch.tensor([0, 1]), 2, worlds=worlds, uploads=program)
    >>> WhichWorld().guess(View.of(encoder, [Round(W, program(W, worlds[1]))]), known)
    tensor(1)

    Args:
        rounds: how many are used at most; fewer where the answer is certain.
    """

    rounds: int = 64
    adversary: ClassVar[Adversary] = "server"
    aim: ClassVar[str] = "whether a record is among a client's, all others known"
    measure: ClassVar[str] = "share of right answers, half of them yes"
    kinds: ClassVar[Kinds] = (RepresentationUpload, JacobianUpload, FactorUpload)

    def guess(self, view: View, knowledge: TwoWorlds) -> Tensor:
        """0 or 1."""
        if knowledge.disguise or len(knowledge.landmarks[0]):
            found = records_read(view, knowledge)
            if len(found):
                return self._of_records(found, knowledge)
        ratio = 0.0
        for one in view.first(self.rounds):
            if not one.messages:
                continue
            if abs(ratio) > SURE:
                break
            expected = [knowledge.uploads(one.weights, x) for x in knowledge.worlds]
            for upload in one.messages:
                if not isinstance(upload, self.kinds):
                    continue
                pair = [next((m for m in world if type(m) is type(upload)), None) for world in expected]
                if pair[0] is None or pair[1] is None:
                    continue
                zero, one_, seen = (torch.cat(list(_numbers(m))) for m in (pair[0], pair[1], upload))
                if len(seen) != len(zero):
                    continue
                apart = (one_ - zero).square().sum()
                variance = max(knowledge.std.get(type(upload), 0.0) ** 2, 1e-12 * float(apart), 1e-30)
                ratio += float(((seen - zero).square().sum() - (seen - one_).square().sum()) / (2 * variance))
        return torch.tensor(int(ratio > 0))

    @staticmethod
    def _of_records(found: Tensor, known: TwoWorlds) -> Tensor:
        """The candidate that what was read, ``[found, d]``, is more like; all other records are the same in both."""
        differ = (known.worlds[0] != known.worlds[1]).any(1)
        likely = []
        for x in (world[differ][0] for world in known.worlds):
            if known.disguise:
                exponent = (2 * found @ x - x.square().sum()) / (2 * known.disguise**2)
                likely.append(float(torch.logsumexp(exponent, 0)))
            else:
                ours, theirs = (F.normalize(landmarks, dim=1) for landmarks in known.landmarks)
                apart = F.normalize(found, dim=1) @ theirs.T - ours @ F.normalize(x, dim=0)
                likely.append(-float(apart.square().sum(1).min()))
        return torch.tensor(int(likely[1] > likely[0]))

    def blind(self, knowledge: TwoWorlds) -> Tensor:
        """Always yes, which is right half of the time."""
        return torch.tensor(1)

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Right or wrong."""
        return float(int(guess) == int(truth))

    def in_words(self, success: float, read: float) -> str:
        """The share."""
        return f"the server tells in {100 * success:.0f} of 100 cases whether a client holds a record"


def _numbers(message: Message) -> Iterator[Tensor]:
    """The numbers of an upload, each as a vector."""
    for value in vars(message).values():
        for part in value.values() if isinstance(value, dict) else (value,):
            if isinstance(part, Tensor):
                yield part.flatten().double()
