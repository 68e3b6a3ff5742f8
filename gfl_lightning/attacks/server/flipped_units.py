"""The samples of a client with several, from how the mean of their Jacobians changes between rounds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.attacks.attack import Adversary, Attack
from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.scores import share_read
from gfl_lightning.attacks.units import uploaded_units
from gfl_lightning.attacks.views import Kinds, View
from gfl_lightning.federated.protocol.messages import FactorUpload, JacobianUpload


@dataclass(frozen=True)
class FlippedUnits(Attack[Knowledge]):
    """U_t[m] = (1/n) Σ_s 1{W̄1 x_s > 0}_m x_s: patterns change from round to round, samples do not.

    Where one sample alone switches a unit on, U_t[m] = x_s/n; where one sample alone flips unit m between two rounds,
    U_{t+1}[m] − U_t[m] = ± x_s/n. Such rows recur, up to sign, at other units and rounds; sums of several rarely do. So
    rows that recur, and are no longer than public records, are samples. Their signs follow from U itself: a
    sample −v in place of v would change every row by −v/n, and one linear fit over all units tells which. The pattern
    of a sample that was found is known in every round, so that its part is taken out and the next pass finds others.

    >>> from gfl_lightning.attacks.views import Round
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder = SizedEncoder(MLP((4,)), num_features=2, num_classes=2)
    >>> W = {"W1": torch.tensor([[1.0, -9], [1, -9], [-9, 1], [-9, 1]]), "W2": torch.ones(2, 4)}
    >>> x = torch.tensor([[1.0, 0.1], [0.05, 1.0]])
    >>> upload = JacobianUpload(0, torch.func.jacrev(lambda w: encoder(w, x).mean(0))(W))
    >>> view = View.of(encoder, [Round(W, (upload,))])
    >>> public = Knowledge(torch.eye(2), torch.tensor([0, 1]), num_classes=2, samples=2)
    >>> FlippedUnits().score(FlippedUnits().guess(view, public), x)
    1.0

    Args:
        alike: the least cosine of rows that count as the same.
        most: rows that are compared at most.
        least: how long a row is, as a share of the longest, to be compared.
        passes: how often what was found is taken out.
    """

    alike: float = 0.999
    most: int = 4096
    least: float = 1e-3
    passes: int = 5
    adversary: ClassVar[Adversary] = "server"
    aim: ClassVar[str] = "the samples of a client with several, from its mean Jacobian over rounds"
    measure: ClassVar[str] = "share of samples read (cosine ≥ 0.95)"
    kinds: ClassVar[Kinds] = (JacobianUpload, FactorUpload)

    def applies(self, view: View) -> bool:
        """Whether patterns can be told: for the two-layer ReLU encoder."""
        return view.encoder.structure is not None and super().applies(view)

    def guess(self, view: View, knowledge: Knowledge) -> Tensor:
        """Samples ``[found, d]``, n at most, scaled as they are."""
        structure, n = view.encoder.structure, knowledge.samples
        assert structure is not None
        W1, U = [], []
        for one in view:
            message = one.find(JacobianUpload) or one.find(FactorUpload)
            found = None if message is None else uploaded_units(view.encoder, one.weights, message)
            if found is not None:
                W1.append(structure.split(one.weights)[0])
                U.append(n * found[0])
        samples = knowledge.public_x[:0]
        if not U:
            return samples
        longest = 1.1 * knowledge.as_sent.norm(dim=1).max()
        for _ in range(self.passes):
            left = [total - (w @ samples.T > 0).to(samples) @ samples for w, total in zip(W1, U, strict=True)]
            rows = torch.cat([left[0], *(now - before for before, now in pairwise(left))])
            more = self._recurring(rows, n - len(samples))
            more = more[more.norm(dim=1) <= longest][: n - len(samples)]
            if not len(more):
                break
            samples = self._signed(torch.cat([samples, more]), U[0], W1[0])
        return samples

    def _recurring(self, rows: Tensor, wanted: int) -> Tensor:
        """The directions that occur most often, at least twice, as rows of their usual length ``[found, d]``."""
        norm = rows.norm(dim=1)
        rows = rows[norm > self.least * norm.max()][: self.most]
        unit = F.normalize(rows, dim=1)
        same = (unit @ unit.T).abs() >= self.alike
        free = torch.ones(len(rows), dtype=torch.bool)
        found: list[Tensor] = []
        while len(found) < 2 * wanted:
            times = (same & free).sum(1) * free
            if not len(times) or int(times.max()) < 2:
                break
            leader = int(times.argmax())
            members = same[leader] & free
            turn = torch.sign(unit[members] @ unit[leader])[:, None]
            found.append((rows[members] * turn).median(0).values)
            free &= ~members
        return torch.stack(found) if found else rows[:0]

    @staticmethod
    def _signed(v: Tensor, total: Tensor, W1: Tensor) -> Tensor:
        """v_s or −v_s: n U[m] = Σ_s (1{w_m·v_s > 0} − b_s) v_s with b_s = 1 where −v_s is the sample."""
        on = (W1 @ v.T > 0).to(v)
        rest = on @ v - total
        gram = v @ v.T
        right = (rest @ v.T).sum(0) / len(W1)
        small = 1e-6 * gram.diagonal().mean()
        b = torch.linalg.solve(gram + small * torch.eye(len(v), dtype=v.dtype), right)
        return torch.where(b[:, None] > 0.5, -v, v)

    def blind(self, knowledge: Knowledge) -> Tensor:
        """As many public records."""
        return knowledge.draw(knowledge.samples)

    def score(self, guess: Tensor, truth: Tensor) -> float:
        """Share of the samples that some guess is close to."""
        return share_read(guess, truth)

    def in_words(self, success: float, read: float) -> str:
        """The share."""
        return f"the server reads {100 * success:.0f} of 100 samples of a client that shares the mean of several"
