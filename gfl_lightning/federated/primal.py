"""The primal path: W1 of every client and T_k = Σ_{j≠k} Ã_kj mean_q s_q x_qᵀ are formed, the Jacobian is not.

∇C_kᵀ r̄ has the W2-part r̄ A_kᵀ and the W1-part diag(W̄2ᵀ r̄) T_k: a factor c less than the Jacobian, and exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.federated.exchange import UploadGroup
from gfl_lightning.federated.local import LocalProblem, LocalResult, normalised_vote, residual
from gfl_lightning.federated.neighbourhood import Neighbourhood
from gfl_lightning.federated.table import SampleTable


@dataclass(frozen=True, eq=False)
class PrimalPath:
    """Local training on ``[K, m, d]`` weights; ``compensated`` is false for V1."""

    table: SampleTable
    compensated: bool

    def __call__(self, problem: LocalProblem) -> LocalResult:
        """The I local steps of every client at once, then the average."""
        exchange, near, training, lr = problem.exchange, problem.neighbourhood, problem.training, problem.lr
        assert exchange.uploaded_a is not None
        weights, batches, own = problem.weights, problem.batches, near.own
        C = near.gather(exchange.uploaded_h)
        A, pull = None, []
        if self.compensated:
            A = near.gather(exchange.uploaded_a)
            pull = [(group.weights["W2"], self._pull(near, group)) for group in exchange.groups]
        K = len(training)
        W1k, W2k = weights["W1"].repeat(K, 1, 1), weights["W2"].repeat(K, 1, 1)
        x_all = self.table.graph.x[training.sample]
        onehot_all = F.one_hot(training.label, weights["W2"].shape[0]).to(x_all.dtype)
        clients = torch.arange(K, device=x_all.device)[:, None]

        x, onehot, weight = x_all, onehot_all, batches.weight[0]
        for step in range(problem.steps):
            if batches.place is not None:
                place, weight = batches.place[step], batches.weight[step]
                x, onehot = x_all[clients, place], onehot_all[clients, place]
            z = x @ W1k.mT
            a = torch.relu(z)
            r = residual(a @ W2k.mT, own, C, onehot, weight)
            own_r = r * own[:, None, None]
            delta = (own_r @ W2k).mul_(z > 0)
            gradient1, gradient2 = delta.mT @ x, own_r.mT @ a
            if A is not None:
                mean_r = r.sum(1)
                gradient2.addcmul_(mean_r[:, :, None], A[:, None, :])
                for then_W2, T in pull:
                    gradient1.addcmul_((mean_r @ then_W2)[:, :, None], T)
            W1k.sub_(gradient1, alpha=lr)
            W2k.sub_(gradient2, alpha=lr)

        finite = (W1k.sum((1, 2)) + W2k.sum((1, 2))).isfinite()
        vote = normalised_vote(problem.vote, finite)
        keep = finite[:, None, None]
        average = {name: torch.tensordot(vote, torch.where(keep, Wk, 0), 1) for name, Wk in (("W1", W1k), ("W2", W2k))}
        return LocalResult(average, finite)

    def _pull(self, near: Neighbourhood, group: UploadGroup) -> Tensor:
        """T_k of the uploads of a group ``[K, m, d]``."""
        assert group.pattern is not None
        table, ragged = self.table, self.table.by_client
        weighted = group.pattern * table.shared_columns(group.positions)[1][:, None]
        if group.positions is not None:
            weighted = weighted.new_zeros(len(table.shared), weighted.shape[1]).index_copy_(
                0, group.positions, weighted
            )
        s = weighted[ragged.place] * ragged.present[..., None]
        x = table.graph.x[table.shared[ragged.place]]
        U = s.mT @ x
        return near.gather(U.flatten(1)).view(-1, *U.shape[1:])
