"""The general path: any encoder, aggregator, estimator and local optimizer, on torch.func, in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import jacrev, vjp, vmap

from gfl_lightning.federated.exchange.exchange import Exchange
from gfl_lightning.federated.exchange.neighbourhood import rows_by_hop
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.local.gradient import PULL, bounded_gradient, client_gradient
from gfl_lightning.federated.local.options import Estimator, LocalTraining
from gfl_lightning.federated.local.problem import (
    LocalPath,
    LocalProblem,
    LocalResult,
    finite_only,
    update_norms,
    weighted_sum,
)
from gfl_lightning.graphs.propagation import Propagation
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.models.model import GAMMA

CHUNK_BYTES = 2**28


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
        if problem.neighbourhood.gate is not None:
            gate = problem.neighbourhood.gate[part, None]
            others, own = others * gate[..., None], gate * own + 1 - gate
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

        offset = problem.offset.take(part)
        x, target, weight = x_all, training.target, batches.weight[0]
        beside = offset.onto(C.new_zeros(len(part), 1, C.shape[-1]))
        for step in range(problem.steps):
            if batches.place is not None:
                place, weight = batches.place[step], batches.weight[step]
                x, target = x_all[k, place], training.target[k, place]
                beside = offset.onto(C.new_zeros(len(part), 1, C.shape[-1]), place)
            if self.estimator == "exact":
                gradient = vmap(self._exact_gradient)(Wk, x, target, weight, own, others)
            elif guard.is_inert:
                alone = vmap(partial(client_gradient, self.encoder, training.loss))
                gradient = alone(Wk, x, target, weight, own, C, grad_C, beside)
            else:
                bounded = vmap(partial(bounded_gradient, guard, self.encoder, training.loss))
                gradient = bounded(Wk, x, target, weight, training.weight, own, C, grad_C)
            gradient |= guard.noisy(step, {name: gradient[name] for name in problem.weights})
            gradient = {name: part.to(Wk[name]) for name, part in gradient.items()}
            for name, W in Wk.items():
                g = gradient[name] + self.local.weight_decay * W
                g += self.local.proximal * (W - start[name])
                velocity[name] = self.local.momentum * velocity[name] + g
                Wk[name] = W - problem.lr * velocity[name]
        pull = Wk.pop(PULL)
        return Wk, pull

    def _exact_gradient(
        self, W: Weights, x: Tensor, target: Tensor, weight: Tensor, own: Tensor, others: Tensor
    ) -> Weights:
        """One client's gradient with everyone's representation recomputed at its own W_k."""

        def outputs(W: Weights) -> Tensor:
            gamma = W.get(GAMMA, torch.ones_like(own))
            shared_h = self.encoder(W, self.table.shared_rows(self.table.graph.x))
            C = (others[:, self.table.owner] * self.table.share) @ shared_h
            return torch.tensordot(gamma, own[:, None, None] * self.encoder(W, x) + C[:, None, :], 1)

        logits, pull = vjp(outputs, W)  # type: ignore[misc]  # three only with has_aux
        (gradient,) = pull(weight[:, None] * self.table.graph.loss.residual(logits, target))
        return gradient

    def _grad_C(self, exchange: Exchange, others: Tensor) -> Weights:
        """∇C_k^l = Σ_{j≠k} (P^l)_kj ∇ĥ_j by weight, ``[k, L, c, …]``, a chunk of shared samples at a time.

        The samples of a client are added up before clients are mixed.
        """
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
                clients, place = owner[part].unique(return_inverse=True)
                mixing, of_sample = others[:, :, clients], group.scale.columns(share[part], part)[:, None]
                for name in shapes:
                    of_client = grad_C[name].new_zeros(len(clients), grad_C[name].shape[2])
                    grad_C[name] += mixing @ of_client.index_add_(0, place, of_sample * jacobian[name].flatten(1))
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
