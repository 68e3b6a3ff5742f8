"""The Gram protocol at the server: the factors of the Jacobians that stand, and what is made of them.

With U_j the W1-part of ∇ĥ_j up to W̄2 (s xᵀ for one sample, the mean of s xᵀ for several), R the rows of Ã without
its diagonal and v the votes,
    A = R a,    T_k = Σ_j R_kj U_j,    T_k x_k = Σ_j R_kj (x_j·x_k) s_j,
    Σ_k v_k W1,k = Σ_k v_k W̄1 − η (Σ_k v_k δ_k x_kᵀ + Σ_j diag(Σ_k v_k R_kj W̄2ᵀ r_k) U_j).
Uploads of different rounds were made with different W̄2, over which the sums are then taken. A linear encoder has
a_j = x̄_j and none of the rest: A is all of ∇C_k, and W_k comes back whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.federated.protocol.messages import FactorAggregate, FactorModelUpload, FactorUpload, Message
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights


class StandingFactors:
    """Factors of N clients' Jacobians, stacked; empty until one is received.

    Args:
        encoder: Ψ_h; where its Jacobian has no factors, none ever come.
        num_clients: N.
        like: a tensor of the type to compute in.
    """

    def __init__(self, encoder: SizedEncoder, num_clients: int, like: Tensor) -> None:
        structure = encoder.structure
        self._structure, self._like, self._num_clients = structure, like, num_clients
        m, d = (structure.width, structure.num_features) if structure else (0, 0)
        linear = encoder.num_features if encoder.encoder.linear_weight is not None else 0
        self._a, self._s = like.new_zeros(num_clients, m or linear), like.new_zeros(num_clients, m)
        self._x = like.new_zeros(num_clients, d)
        self._enrolled = torch.zeros(num_clients, dtype=torch.bool)
        self._U: dict[int, Tensor] = {}
        self._made_in = torch.full((num_clients,), -1)
        self._W2: dict[int, Tensor] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no factors have come."""
        return not bool((self._made_in >= 0).any())

    def receive(self, upload: FactorUpload, t: int, weights: Weights) -> None:
        """Keep the factors of a client, made at W̄ of round t."""
        j = upload.client
        self._a[j], self._made_in[j] = upload.activation, t
        if self._structure is None:
            return
        self._W2[t] = self._structure.split(weights)[1]
        if upload.direction is not None:
            self._x[j], self._enrolled[j] = upload.direction, True
        if upload.U is not None:
            self._U[j] = upload.U
        elif upload.pattern is not None:
            self._s[j] = upload.pattern.to(self._like)
        in_use = set(self._made_in.unique().tolist())
        self._W2 = {number: W2 for number, W2 in self._W2.items() if number in in_use}

    def aggregates(self, clients: Sequence[int], rows: Tensor, t: int, weights: Weights) -> list[Message]:
        """What clients k need of ∇C_k, from their rows of Ã without the diagonal ``[K, N]``."""
        if self._structure is None:
            return [FactorAggregate(k, a) for k, a in zip(clients, rows @ self._a, strict=True)]
        groups = self._groups()
        fresh = set(groups) == {t}
        places = torch.tensor(list(clients), dtype=torch.int64)
        single = self._enrolled[places]
        parts = {number: self._times((rows * mask)[single], places[single]) for number, mask in groups.items()}
        crosses = iter(parts[t] if fresh else self._with_W2(parts))
        found: list[Message] = []
        for k, a, row, one in zip(clients, rows @ self._a, rows, single.tolist(), strict=True):
            if one:
                found.append(FactorAggregate(k, a, cross=next(crosses)))
            else:
                T = {number: self._mixed(row * mask)[None] for number, mask in groups.items()}
                found.append(FactorAggregate(k, a, T=(T[t] if fresh else self._with_W2(T))[0]))
        return found

    def moved(
        self, uploads: Sequence[FactorModelUpload], vote: Tensor, rows: Tensor, weights: Weights, lr: float
    ) -> Weights:
        """Σ_k v_k W_k of clients that sent the factors of their update, from their rows of Ã ``[K, N]``."""
        assert self._structure is not None
        W1, _ = self._structure.split(weights)
        delta = torch.stack([one.delta for one in uploads]) * vote[:, None]
        residual = torch.stack([one.residual for one in uploads]) * vote[:, None]
        W2 = torch.tensordot(vote, torch.stack([one.W2 for one in uploads]), 1)
        step = delta.T @ self._x[[one.client for one in uploads]]
        for number, mask in self._groups().items():
            asked = (rows * mask).T @ (residual @ self._W2[number])
            step = step + self._weighted(asked)
        return self._structure.join(vote.sum() * W1 - lr * step, W2)

    def _groups(self) -> dict[int, Tensor]:
        """Which clients' factors were made at W̄ of a round, by round ``[N]``."""
        return {int(n): (self._made_in == n).to(self._like) for n in self._made_in.unique().tolist() if n >= 0}

    def _with_W2(self, parts: dict[int, Tensor]) -> Tensor:
        """Σ_g W̄2^g ⊙ T^g of each client, ``[K, m, …] → [K, c, m, …]``."""
        terms = [
            self._W2[number].view(*self._W2[number].shape, *[1] * (part.ndim - 2)) * part[:, None]
            for number, part in parts.items()
        ]
        return torch.stack(terms).sum(0)

    def _mixed(self, row: Tensor) -> Tensor:
        """Σ_j R_kj U_j ``[m, d]``."""
        return self._weighted(row[:, None].expand(-1, self._a.shape[1]))

    def _weighted(self, weight: Tensor) -> Tensor:
        """Σ_j diag(weight_j) U_j, ``[N, m] → [m, d]``."""
        total = (weight * self._s).T @ self._x
        if self._U:
            several = list(self._U)
            total = total + torch.einsum("jm,jmd->md", weight[several], torch.stack([self._U[j] for j in several]))
        return total

    def _times(self, rows: Tensor, clients: Tensor) -> Tensor:
        """Σ_j R_kj U_j x_k of each client k ``[K, m]``."""
        x = self._x[clients]
        total = (rows * (x @ self._x.T)) @ self._s
        if self._U:
            several = list(self._U)
            U = torch.stack([self._U[j] for j in several])
            total = total + torch.einsum("kj,jmd,kd->km", rows[:, several], U, x)
        return total

    def state(self) -> dict[str, Any]:
        """Plain containers of tensors and numbers."""
        names = ("a", "s", "x", "enrolled", "U", "made_in", "W2")
        return {name: getattr(self, f"_{name}") for name in names}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what :meth:`state` returned."""
        for name, value in state.items():
            setattr(self, f"_{name}", value)
