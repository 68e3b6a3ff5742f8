"""The primal path: W1 of every client and T_k = Σ_{j≠k} Ã_kj mean_q s_q x_qᵀ are formed, the Jacobian is not.

∇C_kᵀ r̄ has the W2-part r̄ A_kᵀ and the W1-part diag(W̄2ᵀ r̄) T_k: a factor c less than the Jacobian, and exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.federated.exchange import UploadGroup
from gfl_lightning.federated.local import LocalProblem, LocalResult, finite_only, rescaled, residual, weighted_sum
from gfl_lightning.federated.neighbourhood import Neighbourhood
from gfl_lightning.federated.table import SampleTable


@dataclass(frozen=True, eq=False)
class PrimalPath:
    """Local training on ``[K, m, d]`` weights; ``compensated`` is false for V1."""

    table: SampleTable
    compensated: bool

    def __call__(self, problem: LocalProblem) -> LocalResult:
        """The I local steps of every client at once, then the average."""
        skipped, vote, (W1k, W2k) = finite_only(problem.vote, *self._steps(problem))
        vote = rescaled(vote) if skipped else vote
        return LocalResult({"W1": weighted_sum(vote, W1k), "W2": weighted_sum(vote, W2k)}, skipped)

    @torch.inference_mode()
    def _steps(self, problem: LocalProblem) -> tuple[Tensor, Tensor]:
        """W1 ``[K, m, d]`` and W2 ``[K, c, m]`` of every client after its local steps."""
        exchange, near, training, lr = problem.exchange, problem.neighbourhood, problem.training, problem.lr
        assert exchange.uploaded_a is not None
        weights, batches = problem.weights, problem.batches
        C = near.gather(exchange.uploaded_h)
        A: Tensor | float = 0.0
        pull = []
        if self.compensated:
            A = near.gather(exchange.uploaded_a)[:, None, :]
            pull = [(group.weights["W2"], self._pull(near, group)) for group in exchange.groups]
        K = len(training)
        own, C = near.own[:, None, None], C[:, None, :]
        W1k, W2k = weights["W1"].repeat(K, 1, 1), weights["W2"].repeat(K, 1, 1)
        x_all = self.table.graph.x[training.sample]
        clients = torch.arange(K, device=x_all.device)[:, None]

        x, target, weight = x_all, training.target, batches.weight[0]
        for step in range(problem.steps):
            if batches.place is not None:
                place, weight = batches.place[step], batches.weight[step]
                x, target = x_all[clients, place], training.target[clients, place]
            z = x @ W1k.mT
            own_a = torch.relu(z) * own
            r = residual(torch.baddbmm(C, own_a, W2k.mT), target, weight)
            delta = torch.ops.aten.threshold_backward(r @ W2k, z, 0) * own
            mean_r = r.sum(1)
            W1k.baddbmm_(delta.mT, x, alpha=-lr)
            W2k.baddbmm_(r.mT, own_a + A, alpha=-lr)
            for then_W2, T in pull:
                W1k.addcmul_((mean_r @ then_W2)[:, :, None], T, value=-lr)
        return W1k, W2k

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
