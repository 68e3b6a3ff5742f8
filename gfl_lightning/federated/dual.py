"""The dual (Gram) path: local training on pre-activations, with no W1 of any client ever formed.

A client uses W1 only through z_s = W1 x_s of its own training samples. With r_s the weighted residual, r̄ = Σ_s r_s,
δ_s = Ã_kk s_s ⊙ W2ᵀ r_s and T_k = Σ_{j≠k} Ã_kj mean_q s_q x_qᵀ, one SGD step moves
    z_s  by −η (Σ_{s'} (x_s·x_{s'}) δ_{s'} + (W̄2ᵀ r̄) ⊙ T_k x_s)       T_k x_s = Σ_q Ω_{s,q} s_q
    W2   by −η (Ã_kk Σ_s r_s a_sᵀ + r̄ A_kᵀ)                             A_k = Σ_{j≠k} Ã_kj a_j
where Ω_{s,q} = Ã_kj (x_s·x_q) / n_j is known before training. The averaged W1 follows from the sums of δ and r̄ over
the steps by one product with X. Uploads of different ages enter as a sum over their W̄2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.federated.exchange import UploadGroup
from gfl_lightning.federated.local import LocalProblem, LocalResult, normalised_vote, residual
from gfl_lightning.federated.neighbourhood import Neighbourhood, rows_of_others
from gfl_lightning.federated.table import SampleTable
from gfl_lightning.federated.training_set import TrainingSet

CHUNK_ENTRIES = 2**24


@dataclass(frozen=True, eq=False)
class DualPath:
    """Inner products of the training samples: ``own [K, n, n]`` and ``cross [K, n, Q]`` = Ω (``None`` for V1)."""

    table: SampleTable
    own: Tensor
    cross: Tensor | None

    @classmethod
    def prepare(
        cls, table: SampleTable, training: TrainingSet, neighbourhood: Neighbourhood, compensated: bool
    ) -> DualPath:
        """Compute the inner products, in chunks of training clients."""
        x = table.graph.x
        own = torch.stack([x[rows] @ x[rows].T for rows in training.sample])
        if not compensated:
            return cls(table, own, None)
        K, n = training.sample.shape
        cross = x.new_empty(K, n, len(table.shared))
        shared_x = table.shared_rows(x)
        size = max(1, CHUNK_ENTRIES // (n * len(table.shared)))
        for part in torch.arange(K, device=x.device).split(size):
            rows = rows_of_others(neighbourhood.A, training.clients[part])[:, table.owner] * table.share
            cross[part] = (x[training.sample[part]] @ shared_x.T) * rows[:, None, :]
        return cls(table, own, cross)

    def __call__(self, problem: LocalProblem) -> LocalResult:
        """The I local steps of every client at once, then the average."""
        exchange, near, training, lr = problem.exchange, problem.neighbourhood, problem.training, problem.lr
        W1, W2 = problem.weights["W1"], problem.weights["W2"]
        assert exchange.z is not None
        assert exchange.uploaded_a is not None
        chosen = slice(None) if problem.chosen is None else problem.chosen
        n = training.sample.shape[1]
        own = near.own
        C = near.gather(exchange.uploaded_h)
        z = exchange.z[training.sample]
        W2k = W2.repeat(len(training), 1, 1)
        onehot = F.one_hot(training.label, W2.shape[0]).to(z.dtype)
        gram = self.own[chosen]
        A, pull = None, []
        if self.cross is not None:
            A = near.gather(exchange.uploaded_a)
            pull = [(group.weights["W2"], _times_pattern(self.cross[chosen], group)) for group in exchange.groups]

        sum_delta, sum_r = torch.zeros_like(z), z.new_zeros(len(training), W2.shape[0])
        for step in range(problem.steps):
            a = torch.relu(z)
            r = residual(a @ W2k.mT, own, C, onehot, problem.batches.step_weight(step, n))
            own_r = r * own[:, None, None]
            delta = (own_r @ W2k).mul_(z > 0)
            mean_r = r.sum(1)
            gradient = own_r.mT @ a
            move = gram @ delta
            if A is not None:
                gradient.addcmul_(mean_r[:, :, None], A[:, None, :])
                for then_W2, Tx in pull:
                    move.addcmul_((mean_r @ then_W2)[:, None, :], Tx)
            W2k.sub_(gradient, alpha=lr)
            z = z.sub(move, alpha=lr)
            sum_delta += delta
            sum_r += mean_r

        finite = (W2k.sum((1, 2)) + sum_delta.sum((1, 2)) + sum_r.sum(1)).isfinite()
        vote = normalised_vote(problem.vote, finite)
        if not bool(finite.all()):
            W2k, sum_delta, sum_r = (
                torch.where(finite.view(-1, *[1] * (t.ndim - 1)), t, 0) for t in (W2k, sum_delta, sum_r)
            )
        D = z.new_zeros(self.table.graph.num_samples, z.shape[-1])
        D.index_add_(0, training.sample.flatten(), (sum_delta * vote[:, None, None]).flatten(0, 1))
        if self.cross is not None:
            self._add_others(D, near.scatter(sum_r * vote[:, None]), exchange.groups)
        average = {"W1": W1 - lr * self.table.features.transposed_times(D), "W2": torch.tensordot(vote, W2k, 1)}
        return LocalResult(average, finite)

    def _add_others(self, D: Tensor, asked: Tensor, groups: list[UploadGroup]) -> None:
        """Add to D the coefficients of the samples that other clients shared, from what each was asked for."""
        for group in groups:
            assert group.pattern is not None
            owner, share, shared = self.table.shared_columns(group.positions)
            pulled = (asked @ group.weights["W2"])[owner] * group.pattern * share[:, None]
            D.index_add_(0, shared, pulled)


def _times_pattern(cross: Tensor, group: UploadGroup) -> Tensor:
    """T_k x_s restricted to the uploads of a group, ``[K, n, Q] → [K, n, m]``."""
    assert group.pattern is not None
    return (cross if group.positions is None else cross[..., group.positions]) @ group.pattern
