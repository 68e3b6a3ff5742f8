"""The general path: any encoder, aggregator, estimator and local optimizer, on torch.func, in bounded memory.

With a learnable aggregator Z = Σ_l γ_l P^l H the server sends the aggregates of each hop, and a client's gradient is
    ∂/∂encoder = (Σ_l γ_l P^l_kk) Jᵀ r + Σ_l γ_l ∇C_k^{l}ᵀ r̄        ∂/∂γ_l = Σ_s r_s · (P^l_kk h_s + C_k^l).
A fixed aggregator is the case of one hop, Ã itself, with γ = 1 that is not trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import grad, jacrev, vjp, vmap

from gfl_lightning.federated.exchange.exchange import Exchange
from gfl_lightning.federated.exchange.neighbourhood import rows_by_hop
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.local.options import Estimator, LocalTraining
from gfl_lightning.federated.local.problem import (
    LocalPath,
    LocalProblem,
    LocalResult,
    finite_only,
    update_norms,
    weighted_sum,
)
from gfl_lightning.federated.protection.step_guard import PlainSteps
from gfl_lightning.graphs.propagation import Propagation
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.models.model import GAMMA

CHUNK_BYTES = 2**28
PULL = "pull"


@dataclass(frozen=True, eq=False)
class GeneralPath(LocalPath):
    """Weights of a chunk of clients at a time, ``[k, …]``.

    Args:
        table: the samples.
        encoder: Ψ_h.
        estimator: compensated, v1 or exact.
        local: the clients' optimizer.
        others: (P^l)_kj, or Ã_kj, with j = k set to 0 ``[K, L, N]``.
        own: (P^l)_kk, or Ã_kk ``[K, L]``.
    """

    table: SampleTable
    encoder: SizedEncoder
    estimator: Estimator
    local: LocalTraining
    others: Tensor
    own: Tensor

    @classmethod
    def prepare(
        cls,
        table: SampleTable,
        encoder: SizedEncoder,
        estimator: Estimator,
        local: LocalTraining,
        A: Propagation,
        clients: Tensor,
        learnable: bool,
    ) -> GeneralPath:
        """Rows of Ã, or of every power of P, for the training clients."""
        return cls(table, encoder, estimator, local, *rows_by_hop(A, clients, learnable))

    def __call__(self, problem: LocalProblem) -> LocalResult:
        """Train a chunk of clients at a time and add up their votes."""
        total = {name: torch.zeros_like(weight) for name, weight in problem.weights.items()}
        votes, skipped, pulls = problem.vote.new_zeros(()), 0, []
        for part in self._parts(problem):
            Wk, pull = self._train(problem, part)
            left_out, vote, kept = finite_only(problem.vote[part], *Wk.values(), pull)
            skipped += left_out
            Wk, pull = dict(zip(Wk, kept, strict=False)), kept[-1]
            vote = problem.counted(vote, 0, partial(update_norms, problem.weights, Wk))
            votes += vote.sum()
            for name, W in Wk.items():
                total[name] += weighted_sum(vote, W)
            pulls.append(pull * vote[:, None, None])
        pull = torch.cat(pulls)
        if problem.protection.touches_models:
            return LocalResult({n: W + (1 - votes) * problem.weights[n] for n, W in total.items()}, skipped, pull)
        votes.clamp_min_(torch.finfo(votes.dtype).tiny)
        return LocalResult({n: W / votes for n, W in total.items()}, skipped, pull / votes)

    def models(self, problem: LocalProblem) -> Weights:
        """The weights of all clients after their local steps, stacked ``[K, …]``."""
        chunks = [self._train(problem, part)[0] for part in self._parts(problem)]
        return {name: torch.cat([Wk[name] for Wk in chunks]) for name in problem.weights}

    def _train(self, problem: LocalProblem, part: Tensor) -> tuple[Weights, Tensor]:
        """The I local steps of the clients at some places: their weights, stacked, and the coefficients of G_k.

        The coefficients follow the recursion of a weight that starts at 0 and has the residual as its gradient.
        """
        chosen = part if problem.chosen is None else problem.chosen[part]
        others, own = self.others[chosen], self.own[chosen]
        training, batches = problem.training.take(part), problem.batches.take(part)
        guard = problem.step_guard.take(part)
        C = others @ problem.exchange.uploaded_h
        grad_C = self._grad_C(problem.exchange, others) if self.estimator == "compensated" else {}
        x_all = self.table.graph.x[training.sample]
        k = torch.arange(len(part), device=part.device)[:, None]
        for name, noise in problem.noise.take(part).parts(list(grad_C)).items():
            grad_C[name] = grad_C[name] + noise
        start = {**problem.weights, PULL: C.new_zeros(C.shape[1:])}
        Wk = {name: weight.repeat(len(part), *[1] * weight.ndim) for name, weight in start.items()}
        velocity = {name: torch.zeros_like(weight) for name, weight in Wk.items()}

        x, target, weight = x_all, training.target, batches.weight[0]
        for step in range(problem.steps):
            if batches.place is not None:
                place, weight = batches.place[step], batches.weight[step]
                x, target = x_all[k, place], training.target[k, place]
            if self.estimator == "exact":
                gradient = vmap(grad(self._exact_loss))(Wk, x, target, weight, own, others)
            elif guard.is_inert:
                gradient = vmap(self._gradient)(Wk, x, target, weight, own, C, grad_C)
            else:
                bounded = vmap(partial(self._bounded_gradient, guard))
                gradient = bounded(Wk, x, target, weight, training.weight, own, C, grad_C)
            for name, noise_of_step in guard.noise(step, problem.weights).items():
                gradient[name] = gradient[name] + noise_of_step
            for name, W in Wk.items():
                g = gradient[name] + self.local.weight_decay * W
                g += self.local.proximal * (W - start[name])
                velocity[name] = self.local.momentum * velocity[name] + g
                Wk[name] = W - problem.lr * velocity[name]
        pull = Wk.pop(PULL)
        return Wk, pull

    def _bounded_gradient(
        self,
        guard: PlainSteps,
        W: Weights,
        x: Tensor,
        target: Tensor,
        weight: Tensor,
        loss_weight: Tensor,
        own: Tensor,
        C: Tensor,
        grad_C: Weights,
    ) -> Weights:
        """One client's Σ_s weight_s min(1, C/‖g_s‖) g_s, every g_s formed."""
        alone = vmap(self._gradient, in_dims=(None, 0, 0, 0, None, None, None))
        each = alone(W, x[:, None], target[:, None], loss_weight[:, None], own, C, grad_C)
        squared = [g.flatten(1).square().sum(1) for name, g in each.items() if name != PULL]
        (counted,) = guard.bounded(weight, torch.stack(squared).sum(0).sqrt, torch.ones_like(weight)[:, None])
        return {name: weighted_sum(counted[:, 0], g) for name, g in each.items()}

    def _gradient(
        self, W: Weights, x: Tensor, target: Tensor, weight: Tensor, own: Tensor, C: Tensor, grad_C: Weights
    ) -> Weights:
        """One client's g = Σ_s (Ã_kk J_s + ∇C_k)ᵀ r_s with C_k and ∇C_k held fixed; no ∇C_k in V1."""
        gamma = W.get(GAMMA, torch.ones_like(own))
        h, pull = vjp(lambda w: self.encoder(w, x), self.encoder.own(W))  # type: ignore[misc]  # three only with has_aux
        hop = own[:, None, None] * h + C[:, None, :]
        logits = torch.tensordot(gamma, hop, 1)
        r = weight[:, None] * (torch.softmax(logits, -1) - target)
        (gradient,) = pull((gamma @ own) * r)
        asked = gamma[:, None] * r.sum(0)
        if grad_C:
            gradient = {n: g + torch.tensordot(asked, grad_C[n], 2) for n, g in gradient.items()}
        learned = {GAMMA: (hop * r).sum((1, 2))} if GAMMA in W else {}
        return {**gradient, **learned, PULL: asked}

    def _exact_loss(self, W: Weights, x: Tensor, target: Tensor, weight: Tensor, own: Tensor, others: Tensor) -> Tensor:
        """One client's loss with everyone's representation recomputed at its own W_k."""
        gamma = W.get(GAMMA, torch.ones_like(own))
        shared_h = self.encoder(W, self.table.shared_rows(self.table.graph.x))
        C = (others[:, self.table.owner] * self.table.share) @ shared_h
        logits = torch.tensordot(gamma, own[:, None, None] * self.encoder(W, x) + C[:, None, :], 1)
        return -(weight[:, None] * target * torch.log_softmax(logits, -1)).sum()

    def _grad_C(self, exchange: Exchange, others: Tensor) -> Weights:
        """∇C_k^l = Σ_{j≠k} (P^l)_kj ∇ĥ_j by weight, ``[k, L, c, …]``, a chunk of shared samples at a time."""
        c, shapes = self.encoder.num_classes, self.encoder.shapes
        size = max(1, CHUNK_BYTES // (c * self._weight_bytes))
        grad_C = {n: others.new_zeros(*others.shape[:2], c * math.prod(shape)) for n, shape in shapes.items()}
        for group in exchange.groups:
            owner, share, rows = self.table.shared_columns(group.positions)
            weights = self.encoder.own(group.weights)
            for part in torch.arange(len(rows), device=rows.device).split(size):
                jacobian = vmap(jacrev(self.encoder.__call__), in_dims=(None, 0))(
                    weights, self.table.graph.x[rows[part]]
                )
                mixing = group.scale.columns(others[:, :, owner[part]] * share[part], part)
                for name in shapes:
                    grad_C[name] += mixing @ jacobian[name].flatten(1)
        return {n: grad_C[n].view(*others.shape[:2], c, *shape) for n, shape in shapes.items()}

    @property
    def _weight_bytes(self) -> int:
        return self.encoder.num_weights * self.table.graph.x.element_size()

    def _parts(self, problem: LocalProblem) -> tuple[Tensor, ...]:
        """Places of the clients, as many at a time as have their working memory in a chunk."""
        each = 6 * self._weight_bytes
        if self.estimator == "compensated":
            each += self.own.shape[1] * self.encoder.num_classes * self._weight_bytes
        if not problem.step_guard.is_inert:
            each += problem.batches.weight.shape[2] * self._weight_bytes
        widest = self.encoder.num_features + sum(shape[0] for shape in self.encoder.shapes.values())
        samples = problem.batches.weight.shape[2] + len(self.table.shared) * (self.estimator == "exact")
        size = max(1, CHUNK_BYTES // (each + 3 * samples * widest * self.table.graph.x.element_size()))
        return torch.arange(len(problem.training), device=problem.vote.device).split(size)
