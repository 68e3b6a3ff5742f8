"""The record of a client behind any differentiable encoder: the one whose messages are the most like those received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import jacrev, vjp

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.scores import cosine, how_close
from gfl_lightning.attacks.server.updates import Update, update_of
from gfl_lightning.attacks.views import Kinds, Round, View
from gfl_lightning.federated.protocol.messages import (
    JacobianAggregate,
    JacobianUpload,
    ModelUpload,
    RepresentationAggregate,
)


@dataclass(frozen=True)
class MatchedGradient(Attack[Knowledge]):
    """x̂ = argmin_x 1 − cos(∇ĥ(x), ∇ĥ_j), or of the step (Ã_kk J(x) + ∇C_k)ᵀ r(x, y) to −ΔW where no Jacobian is shared.

    For encoders of which nothing is known but that they can be differentiated; by Adam from public records, the label
    being tried out.

    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder = SizedEncoder(MLP((8,), activation="tanh"), num_features=3, num_classes=2)
    >>> W, x = encoder.initial_weights(torch.Generator().manual_seed(0)), torch.tensor([1.0, -1.0, 0.5])
    >>> upload = JacobianUpload(0, jacrev(lambda w: encoder(w, x))(W))
    >>> view = View.of(encoder, [Round(W, (upload,))])
    >>> public = Knowledge(torch.randn(4, 3, generator=torch.Generator().manual_seed(1)), torch.arange(4) % 2, 2)
    >>> MatchedGradient().score(MatchedGradient().guess(view, public), x) > 0.99
    True

    Args:
        steps: of Adam.
        lr: its rate.
        starts: public records it starts from.
    """

    steps: int = 300
    lr: float = 0.05
    starts: int = 2
    adversary: ClassVar[Adversary] = "server"
    aim: ClassVar[str] = "the record of a client with one sample, by matching its messages"
    measure: ClassVar[str] = "cosine to the record"
    kinds: ClassVar[Kinds] = (JacobianUpload, ModelUpload)
    helpful: ClassVar[Kinds] = (JacobianAggregate, RepresentationAggregate)

    def applies(self, view: View) -> bool:
        """Where no weight meets the features alone: else `RankOne` and `UpdateSample` need no search."""
        return view.encoder.encoder.feature_weight is None and super().applies(view)

    def guess(self, view: View, knowledge: Knowledge) -> Tensor:
        """x̂ ``[d]`` from the first round with a Jacobian or an update."""
        best, lowest = self.blind(knowledge), torch.inf
        one = next((r for r in view if r.find(JacobianUpload) or r.find(ModelUpload)), None)
        if one is None:
            return best
        upload, update = one.find(JacobianUpload), update_of(view, one)
        labels = [0] if upload is not None else list(range(view.encoder.num_classes))
        for start in knowledge.draw(self.starts):
            for label in labels:
                x, loss = self._search(view, one, upload, update, start, label)
                if loss < lowest:
                    best, lowest = x, loss
        return best

    def _search(
        self, view: View, one: Round, upload: JacobianUpload | None, update: Update | None, start: Tensor, label: int
    ) -> tuple[Tensor, float]:
        x = start.clone().requires_grad_()
        optimizer = torch.optim.Adam([x], lr=self.lr)
        target = _flat(upload.jacobian if upload is not None else update.step if update is not None else {})
        loss = torch.tensor(torch.inf)
        for _ in range(self.steps):
            optimizer.zero_grad()
            made = self._jacobian(view, one, x) if upload is not None else self._step(view, one, update, x, label)
            loss = 1 - torch.nn.functional.cosine_similarity(_flat(made), target, dim=0)
            loss.backward()
            optimizer.step()
        return x.detach(), float(loss.detach())

    @staticmethod
    def _jacobian(view: View, one: Round, x: Tensor) -> dict[str, Tensor]:
        made: dict[str, Tensor] = jacrev(lambda w: view.encoder(w, x))(view.encoder.own(one.weights))
        return made

    @staticmethod
    def _step(view: View, one: Round, update: Update | None, x: Tensor, label: int) -> dict[str, Tensor]:
        sent = one.find(RepresentationAggregate)
        h, pull = vjp(lambda w: view.encoder(w, x), view.encoder.own(one.weights))  # type: ignore[misc]
        r = torch.softmax(view.own * h + (0 if sent is None else sent.C), -1)
        r = r - torch.nn.functional.one_hot(torch.tensor(label), len(h)).to(r)
        (own,) = pull(view.own * r)
        extra = {} if update is None else update.compensation
        return {name: g + (torch.tensordot(r, extra[name], 1) if name in extra else 0) for name, g in own.items()}

    def blind(self, knowledge: Knowledge) -> Tensor:
        """The mean public record."""
        return knowledge.mean

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Cosine."""
        return cosine(guess, truth)

    def in_words(self, success: float, read: float) -> str:
        """How many are read, or how close it comes."""
        if read > 0.995:
            return "the server reads every record by search"
        if read > 0.05:
            return f"the server reads {100 * read:.0f} of 100 records by search"
        return f"the server knows a record by search {how_close(success)}"


def _flat(parts: dict[str, Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts.values()])
