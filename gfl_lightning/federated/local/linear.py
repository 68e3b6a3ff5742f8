"""The linear path: for h = W x the Jacobian of a sample is x, whatever W is, so that none is ever computed.

With x̄_j the mean of what client j shares and B_k = Σ_{j≠k} Ã_kj x̄_j, which is known before training,
    g = Σ_s r_s (Ã_kk x_s + B_k)ᵀ        B_k = 0 in V1
and the local steps run on W_k ``[c, d]`` of every client at once, with any local optimizer. Uploads of different ages
have the same Jacobian; a client that never shared is missing from B_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gfl_lightning.federated.exchange.exchange import Exchange
from gfl_lightning.federated.exchange.neighbourhood import Neighbourhood
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.local.problem import (
    LocalPath,
    LocalProblem,
    LocalResult,
    finite_only,
    residual,
    update_norms,
)
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True, eq=False)
class LinearPath(LocalPath):
    """Local training on ``[K, c, d]`` weights.

    Args:
        table: the samples.
        name: of the weight W.
        local: the clients' optimizer.
        compensated: false for V1.
        around: B_k of all training clients ``[K, d]`` where everyone shares.
    """

    table: SampleTable
    name: str
    local: LocalTraining
    compensated: bool
    around: Tensor

    @classmethod
    def prepare(
        cls, table: SampleTable, name: str, local: LocalTraining, neighbourhood: Neighbourhood, compensated: bool
    ) -> LinearPath:
        """Propagate the features that are shared, once."""
        x = table.graph.x
        if not compensated:
            return cls(table, name, local, False, x.new_zeros(len(neighbourhood.clients), x.shape[1]))
        return cls(table, name, local, True, neighbourhood.gather(table.client_mean(table.shared_rows(x))))

    def __call__(self, problem: LocalProblem) -> LocalResult:
        """The I local steps of every client at once, then the average."""
        skipped, vote, (Wk,) = finite_only(problem.vote, self._steps(problem))
        vote = problem.counted(vote, skipped, partial(update_norms, problem.weights, {self.name: Wk}))
        average = {self.name: problem.average(problem.weights[self.name], vote, Wk)}
        return LocalResult(average, skipped, Wk.new_zeros(len(Wk), 1, Wk.shape[1]))

    def models(self, problem: LocalProblem) -> Weights:
        """The weights of all clients after their local steps, stacked ``[K, …]``."""
        return {self.name: self._steps(problem)}

    @torch.inference_mode()
    def _steps(self, problem: LocalProblem) -> Tensor:
        """W of every client after its local steps ``[K, c, d]``."""
        near, training, batches, lr = problem.neighbourhood, problem.training, problem.batches, problem.lr
        W, around = problem.weights[self.name], self._around(problem)
        C = near.gather(problem.exchange.uploaded_h)[:, None, :]
        x_all = self.table.graph.x[training.sample] * near.own[:, None, None]
        clients = torch.arange(len(training), device=W.device)[:, None]
        decay, proximal, momentum = self.local.weight_decay, self.local.proximal, self.local.momentum
        Wk = W.repeat(len(training), 1, 1)
        velocity = torch.zeros_like(Wk) if momentum else None
        x, target, weight, beside = x_all, training.target, batches.weight[0], problem.offset.onto(C)
        for step in range(problem.steps):
            if batches.place is not None:
                place, weight = batches.place[step], batches.weight[step]
                x, target = x_all[clients, place], training.target[clients, place]
                beside = problem.offset.onto(C, place)
            r = residual(training.loss, torch.baddbmm(beside, x, Wk.mT), target, weight)
            g = torch.baddbmm(r.sum(1)[:, :, None] * around[:, None, :], r.mT, x)
            if decay:
                g.add_(Wk, alpha=decay)
            if proximal:
                g.add_(Wk - W, alpha=proximal)
            if velocity is not None:
                g = velocity.mul_(momentum).add_(g)
            Wk.sub_(g, alpha=lr)
        return Wk

    def _around(self, problem: LocalProblem) -> Tensor:
        """B_k of the clients that train ``[K, d]``."""
        if not self.compensated or problem.exchange.everyone_shared:
            around, gate = self.around, problem.neighbourhood.gate
            around = around if problem.chosen is None else around[problem.chosen]
            return around if gate is None else around * gate[:, None]
        return problem.neighbourhood.gather(self._standing(problem.exchange))

    def _standing(self, exchange: Exchange) -> Tensor:
        """x̄_j of the uploads that stand ``[N, d]``, 0 where there is none."""
        table = self.table
        total = table.graph.x.new_zeros(table.graph.num_clients, table.graph.num_features)
        for group in exchange.groups:
            rows = table.shared_columns(group.positions)[2]
            total += table.client_mean(table.graph.x[rows], group.positions)
        return total
