"""The dual (Gram) path: local training on pre-activations, with no W1 of any client ever formed.

A client uses W1 only through z_s = W1 x_s of its own training samples. With r_s the weighted residual, r̄ = Σ_s r_s,
δ_s = Ã_kk s_s ⊙ W2ᵀ r_s and T_k = Σ_{j≠k} Ã_kj mean_q s_q x_qᵀ, one SGD step moves
    z_s  by −η (Σ_{s'} (x_s·x_{s'}) δ_{s'} + (W̄2ᵀ r̄) ⊙ T_k x_s)       T_k x_s = Σ_q Ω_{s,q} s_q
    W2   by −η Σ_s r_s (Ã_kk a_s + A_k)ᵀ                                 A_k = Σ_{j≠k} Ã_kj a_j
where Ω_{s,q} = Ã_kj (x_s·x_q) / n_j is known before training. The averaged W1 follows from the sums of δ and r̄ over
the steps by one product with X. Uploads of different ages enter as a sum over their W̄2. The last step of a round needs
no new z, so that with I = 1 no inner product is used at all.

The steps below hold v = Ã_kk z instead of z: as Ã_kk > 0, relu(v) = Ã_kk a, and every factor Ã_kk is applied once,
before the steps, to the inner products.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.federated.exchange.exchange import UploadGroup
from gfl_lightning.federated.exchange.neighbourhood import Neighbourhood, rows_of_others
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.local.problem import LocalPath, LocalProblem, LocalResult, finite_only, residual
from gfl_lightning.models.encoders.two_layer_relu import TwoLayerReLU

CHUNK_ENTRIES = 2**24


@dataclass(frozen=True, eq=False)
class DualPath(LocalPath):
    """Inner products of the training samples, with the factors Ã_kk that v = Ã_kk z brings.

    Args:
        table: the samples.
        structure: of the encoder.
        gram: Ã_kk² x_s·x_{s'} ``[K, n, n]``.
        cross: Ã_kk Ω ``[K, n, Q]``; ``None`` for V1.
    """

    table: SampleTable
    structure: TwoLayerReLU
    gram: Tensor
    cross: Tensor | None

    @classmethod
    def prepare(
        cls,
        table: SampleTable,
        structure: TwoLayerReLU,
        training: TrainingSet,
        neighbourhood: Neighbourhood,
        compensated: bool,
    ) -> DualPath:
        """Compute the inner products, in chunks of training clients."""
        x = table.graph.x
        own = neighbourhood.own[:, None, None]
        gram = torch.stack([x[rows] @ x[rows].T for rows in training.sample]) * own**2
        if not compensated:
            return cls(table, structure, gram, None)
        K, n = training.sample.shape
        cross = x.new_empty(K, n, len(table.shared))
        shared_x = table.shared_rows(x)
        size = max(1, CHUNK_ENTRIES // (n * len(table.shared)))
        for part in torch.arange(K, device=x.device).split(size):
            rows = rows_of_others(neighbourhood.A, training.clients[part])[:, table.owner] * table.share
            cross[part] = (x[training.sample[part]] @ shared_x.T) * (rows[:, None, :] * own[part])
        return cls(table, structure, gram, cross)

    def __call__(self, problem: LocalProblem) -> LocalResult:
        """The I local steps of every client at once, then the average."""
        skipped, vote, (W2k, delta, r) = finite_only(problem.vote, *self._steps(problem))
        vote = problem.counted(vote, skipped, lambda: self._update_norms(problem, W2k, delta, r))
        asked = problem.neighbourhood.scatter(r * vote[:, None]) if self.cross is not None else None
        D = self._coefficients(delta * vote[:, None, None], asked, problem)
        moved = self.table.features.transposed_times(D)
        pull = (r * vote[:, None])[:, None, :]
        moved = problem.noise.mixed_into(moved, pull)
        W1, W2 = self.structure.split(problem.weights)
        average = self.structure.join(moved.mul_(-problem.lr).add_(W1), problem.average(W2, vote, W2k))
        return LocalResult(average, skipped, pull * -problem.lr)

    @torch.inference_mode()
    def _steps(self, problem: LocalProblem) -> tuple[Tensor, Tensor, Tensor]:
        """W2 of every client after its local steps ``[K, c, m]``, and the sums of δ ``[K, n, m]`` and r̄ ``[K, c]``."""
        exchange, near, training, lr = problem.exchange, problem.neighbourhood, problem.training, problem.lr
        assert exchange.z is not None
        _, W2 = self.structure.split(problem.weights)
        chosen = slice(None) if problem.chosen is None else problem.chosen
        n, own = training.sample.shape[1], near.own[:, None, None]
        C = problem.offset.onto(near.gather(exchange.uploaded_h)[:, None, :])
        v = exchange.z[training.sample] * own
        W2k = W2.expand(len(training), -1, -1).clone()
        gram = self.gram[chosen]
        if near.gate is not None:
            regained = self._regained(near)
            gram = gram * regained**2
        last = problem.steps - 1
        A: Tensor | float = 0.0
        pull = []
        if self.cross is not None:
            assert exchange.uploaded_a is not None
            A = near.gather(exchange.uploaded_a)[:, None, :]
            if last > 0:
                cross = self.cross[chosen]
                cross = cross if near.gate is None else cross * regained * near.gate[:, None, None]
                pull = [(self._second(group), _times_pattern(cross, group)) for group in exchange.groups]
        noise = self._noise_that_is_read(problem)

        sum_delta, sum_r = torch.zeros_like(v), v.new_zeros(len(training), 1, W2.shape[0])
        for step in range(problem.steps):
            own_a = torch.relu(v)
            logits = torch.baddbmm(C, own_a, W2k.mT)
            r = residual(training.loss, logits, training.target, problem.batches.step_weight(step, n))
            mean_r = r if n == 1 else r.sum(1, keepdim=True)
            delta = torch.ops.aten.threshold_backward(r @ W2k, v, 0)
            W2k.baddbmm_(r.mT, own_a + A, alpha=-lr)
            sum_delta += delta
            sum_r += mean_r
            for G in noise:
                on_v, on_W2 = (mean_r @ G).mul_(lr).split([v[0].numel(), W2.numel()], dim=2)
                v = v - on_v.view_as(v)
                W2k -= on_W2.view_as(W2k)
            if step == last:
                break
            v = torch.baddbmm(v, gram, delta, alpha=-lr) if n > 1 else torch.addcmul(v, gram, delta, value=-lr)
            for then_W2, Tx in pull:
                v.addcmul_(mean_r @ then_W2, Tx, value=-lr)
        return W2k, sum_delta * own, sum_r[:, 0]

    def _regained(self, near: Neighbourhood) -> Tensor:
        """What a gate leaves of the factors Ã_kk in the inner products, by which these are to be multiplied ``[K]``."""
        return (near.own / near.A.diagonal(near.clients))[:, None, None]

    def _second(self, group: UploadGroup) -> Tensor:
        """W̄2 of the uploads of a group."""
        return self.structure.split(group.weights)[1]

    def _noise_that_is_read(self, problem: LocalProblem) -> list[Tensor]:
        """For each class o, Ã_kk G_k[o] x_s of own samples beside the W2-part of G_k[o], ``[K, c, (n + c) m]``."""
        own = problem.neighbourhood.own[:, None, None, None]
        reads = problem.noise.reads(self.table.graph.x, problem.training.sample, self.structure.second)
        return [torch.cat([(on_x * own).flatten(2), on_W2.flatten(2)], dim=2) for on_x, on_W2 in reads]

    def _update_norms(self, problem: LocalProblem, W2k: Tensor, delta: Tensor, r: Tensor) -> Tensor:
        """‖W_k − W̄‖ of each client ``[K]``, forming the updates of W1 a chunk of clients at a time."""
        table, training, near = self.table, problem.training, problem.neighbourhood
        squared = (W2k - self.structure.split(problem.weights)[1]).flatten(1).square().sum(1)
        noise = list(problem.noise.parts([self.structure.first]).values())
        S, m = table.graph.num_samples, delta.shape[-1]
        for part in torch.arange(len(training), device=delta.device).split(max(1, CHUNK_ENTRIES // (S * m))):
            D = delta.new_zeros(S, len(part), m)
            if self.cross is not None:
                rows = near.others(part)
                for group in problem.exchange.groups:
                    assert group.pattern is not None
                    owner, share, shared = table.shared_columns(group.positions)
                    asked = rows.T[owner, :, None] * (r[part] @ self._second(group))
                    D.index_add_(0, shared, asked * (group.pattern * share[:, None])[:, None, :])
            place = torch.arange(len(part), device=part.device)[:, None].expand_as(training.sample[part])
            D.index_put_((training.sample[part], place), delta[part], accumulate=True)
            moved = table.features.transposed_times(D.flatten(1)).reshape(len(part), m, -1)
            for G in noise:
                moved = moved + torch.einsum("kc,kcmd->kmd", r[part], G[part, 0])
            squared[part] += (problem.lr * moved).flatten(1).square().sum(1)
        return squared.sqrt()

    def _coefficients(self, delta: Tensor, asked: Tensor | None, problem: LocalProblem) -> Tensor:
        """D ``[S, m]`` with W̄1 − η Dᵀ X the averaged W1.

        ``delta [K, n, m]`` belongs to the clients' own samples; ``asked [N, c]``, what the training clients' residuals
        ask of each client, becomes a coefficient of every sample it shared.
        """
        table = self.table
        pulled = []
        if asked is not None:
            for group in problem.exchange.groups:
                assert group.pattern is not None
                pulled.append(table.spread(asked @ self._second(group), group.pattern, group.positions))
        if pulled and table.all_shared and problem.exchange.everyone_shared:
            (D,) = pulled
        else:
            D = delta.new_zeros(table.graph.num_samples, delta.shape[-1])
            for part, group in zip(pulled, problem.exchange.groups, strict=False):
                D.index_add_(0, table.shared_columns(group.positions)[2], part)
        return D.index_add_(0, problem.training.sample.flatten(), delta.flatten(0, 1))


def _times_pattern(cross: Tensor, group: UploadGroup) -> Tensor:
    """Ã_kk T_k x_s restricted to the uploads of a group, ``[K, n, Q] → [K, n, m]``."""
    assert group.pattern is not None
    return (cross if group.positions is None else cross[..., group.positions]) @ group.pattern
