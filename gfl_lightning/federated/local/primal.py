"""The primal path: W1 of every client and T_k = Σ_{j≠k} Ã_kj mean_q s_q x_qᵀ are formed, the Jacobian is not.

∇C_kᵀ r̄ has the W2-part r̄ A_kᵀ and the W1-part diag(W̄2ᵀ r̄) T_k: a factor c less than the Jacobian, and exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from gfl_lightning.federated.exchange.exchange import UploadGroup
from gfl_lightning.federated.exchange.neighbourhood import Neighbourhood
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.local.gradient_norms import Compensation, gradient_norms
from gfl_lightning.federated.local.problem import (
    LocalPath,
    LocalProblem,
    LocalResult,
    finite_only,
    residual,
    update_norms,
)
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.two_layer_relu import TwoLayerReLU


@dataclass(frozen=True, eq=False)
class PrimalPath(LocalPath):
    """Local training on ``[K, m, d]`` weights.

    Args:
        table: the samples.
        structure: of the encoder.
        compensated: false for V1.
    """

    table: SampleTable
    structure: TwoLayerReLU
    compensated: bool

    def __call__(self, problem: LocalProblem) -> LocalResult:
        """The I local steps of every client at once, then the average."""
        skipped, vote, (W1k, W2k, sum_r) = finite_only(problem.vote, *self._steps(problem))
        stacked = self.structure.join(W1k, W2k)
        vote = problem.counted(vote, skipped, lambda: update_norms(problem.weights, stacked))
        pull = (sum_r * (-problem.lr * vote)[:, None])[:, None, :]
        average = {name: problem.average(problem.weights[name], vote, W) for name, W in stacked.items()}
        return LocalResult(average, skipped, pull)

    @torch.inference_mode()
    def _steps(self, problem: LocalProblem) -> tuple[Tensor, Tensor, Tensor]:
        """W1 ``[K, m, d]`` and W2 ``[K, c, m]`` of every client after its local steps, and the sum of r̄ ``[K, c]``."""
        exchange, near, training, lr = problem.exchange, problem.neighbourhood, problem.training, problem.lr
        assert exchange.uploaded_a is not None
        weights, batches, guard = problem.weights, problem.batches, problem.step_guard
        C = near.gather(exchange.uploaded_h)
        A: Tensor | float = 0.0
        pull = []
        if self.compensated:
            A = near.gather(exchange.uploaded_a)[:, None, :]
            pull = [(self.structure.split(group.weights)[1], self._pull(near, group)) for group in exchange.groups]
        G = {name: part[:, 0] for name, part in problem.noise.parts(list(weights)).items()}
        first = second = None
        if self.compensated and not guard.is_inert:
            first, second = self._compensations(pull, G)
        pull = [(guard.exactly(then_W2), guard.exactly(T)) for then_W2, T in pull]
        G = {name: guard.exactly(part) for name, part in G.items()}
        K = len(training)
        own, C = near.own[:, None, None], C[:, None, :]
        W1k, W2k = (W.repeat(K, 1, 1) for W in self.structure.split(weights))
        stacked = self.structure.join(W1k, W2k)
        x_all = self.table.graph.x[training.sample]
        clients = torch.arange(K, device=x_all.device)[:, None]
        sum_r = C.new_zeros(K, C.shape[-1])

        x, target, weight, beside = x_all, training.target, batches.weight[0], problem.offset.onto(C)
        for step in range(problem.steps):
            if batches.place is not None:
                place, weight = batches.place[step], batches.weight[step]
                x, target = x_all[clients, place], training.target[clients, place]
                beside = problem.offset.onto(C, place)
            z = x @ W1k.mT
            own_a = torch.relu(z) * own
            loss_weight = guard.loss_weight(weight, training.weight)
            r = residual(training.loss, torch.baddbmm(beside, own_a, W2k.mT), target, loss_weight)
            delta = torch.ops.aten.threshold_backward(r @ W2k, z, 0) * own
            norms = partial(gradient_norms, x, delta, r, own_a + A, first, second)
            r, delta = (guard.exactly(one) for one in guard.bounded(weight, norms, r, delta))
            mean_r = r.sum(1)
            moved, rate = guard.gathers(stacked, lr)
            on_W1, on_W2 = self.structure.split(moved)
            on_W1.baddbmm_(delta.mT, guard.exactly(x), alpha=rate)
            on_W2.baddbmm_(r.mT, guard.exactly(guard.finite(own_a + A)), alpha=rate)
            for then_W2, T in pull:
                on_W1.addcmul_((mean_r @ then_W2)[:, :, None], T, value=rate)
            for name, part in G.items():
                moved[name].add_((mean_r[:, None, :] @ part.flatten(2)).view_as(moved[name]), alpha=rate)
            guard.move(step, stacked, moved, lr)
            sum_r += mean_r
        return W1k, W2k, sum_r

    def _pull(self, near: Neighbourhood, group: UploadGroup) -> Tensor:
        """T_k of the uploads of a group ``[K, m, d]``."""
        assert group.pattern is not None
        table, ragged = self.table, self.table.by_client
        weighted = group.pattern * table.shared_columns(group.positions)[1][:, None]
        if group.positions is not None:
            weighted = weighted.new_zeros(len(table.shared), weighted.shape[1]).index_copy_(
                0, group.positions, weighted
            )
        s = weighted.view(*ragged.place.shape, -1) if table.even else weighted[ragged.place]
        U = self._shared_x @ s
        return near.gather(U.flatten(1)).view(-1, *U.shape[1:]).mT.contiguous()

    @cached_property
    def _shared_x(self) -> Tensor:
        """The features that each client shares ``[N, d, n]``, 0 past its last sample."""
        ragged = self.table.by_client
        x = self.table.graph.x[self.table.shared[ragged.place]] * ragged.present[..., None]
        return x.mT.contiguous()

    def _compensations(
        self, pull: list[tuple[Tensor, Tensor]], noise: Weights
    ) -> tuple[Compensation, Compensation | None]:
        """The W1-part of ∇C_k and the noise in its W2-part, for the norms of gradients."""
        J = torch.stack([then_W2[:, :, None] * T[:, None] for then_W2, T in pull]).sum(0)
        if not noise:
            return Compensation.of(J), None
        first, second = self.structure.split(noise)
        return Compensation.of(J + first), Compensation.of(second)
