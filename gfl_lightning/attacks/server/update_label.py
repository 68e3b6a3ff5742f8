"""The label of a training client, from its model update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.server.update_sample import UpdateSample
from gfl_lightning.attacks.server.updates import solved_residual, updates_of
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import JacobianAggregate, JacobianUpload, ModelUpload


@dataclass(frozen=True)
class UpdateLabel(Attack[Knowledge]):
    """r = ŷ − y is negative at the label alone, and row o of −ΔW2/η is Σ_i r_o (Ã_kk a + A_k), with a and A_k ≥ 0.

    So the label is the row with the least sum. The server takes its own noise out first where it sent some: with ∇C_k
    in the way it solves for Σ r (`UpdateSample`). For other encoders Σ r is the least-squares solution of
    −ΔW/η = (Ã_kk ∇ĥ_k + ∇C_k)ᵀ Σ r, all of it but Σ r being the server's own messages.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder = SizedEncoder(MLP((16,)), num_features=4, num_classes=3)
    >>> W, x = encoder.initial_weights(torch.Generator().manual_seed(0)), torch.tensor([1.0, 0.0, 2.0, 0.5])
    >>> loss = lambda w: torch.nn.functional.cross_entropy(encoder(w, x), torch.tensor(2))
    >>> after = {name: W[name] - 0.1 * g for name, g in torch.func.grad(loss)(W).items()}
    >>> view = View.of(encoder, [Round(W, (ModelUpload(0, after),))], lr=0.1)
    >>> UpdateLabel().guess(view, Knowledge(torch.eye(4), torch.tensor([0, 1, 0, 2]), num_classes=3))
    tensor(2)

    Args:
        rounds: how many are used at most.
    """

    rounds: int = 1
    adversary: ClassVar[Adversary] = "server"
    aim: ClassVar[str] = "the label of a training client, from W_k − W̄"
    measure: ClassVar[str] = "share of labels guessed right"
    kinds: ClassVar[Kinds] = (ModelUpload,)
    helpful: ClassVar[Kinds] = (JacobianAggregate, JacobianUpload)

    def applies(self, view: View) -> bool:
        """Whether there is a second weight to look at, or Jacobians to solve with."""
        return super().applies(view) and (view.encoder.structure is not None or JacobianUpload in view.kinds())

    def guess(self, view: View, knowledge: Knowledge) -> Tensor:
        """The class with the least residual over the rounds."""
        total = knowledge.public_x.new_zeros(view.encoder.num_classes)
        for one, update in updates_of(view, self.rounds):
            if view.encoder.structure is None:
                upload = one.find(JacobianUpload)
                total += 0 if upload is None else solved_residual(view.own, update, upload.jacobian)
            elif update.compensation and knowledge.samples == 1:
                R = UpdateSample().split(view, update).residual
                total += R / R.norm().clamp_min(torch.finfo(R.dtype).tiny)
            else:
                total += view.encoder.structure.split(update.step)[1].sum(1)
        return total.argmin() if bool(total.any()) else self.blind(knowledge)

    def blind(self, knowledge: Knowledge) -> Tensor:
        """The most frequent public label."""
        return knowledge.shares().argmax()

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Right or wrong."""
        return float(int(guess) == int(truth))

    def in_words(self, success: float, read: float) -> str:
        """The share."""
        return f"the server names the label of {100 * success:.0f} of 100 training clients"
