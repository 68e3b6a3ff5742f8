"""The linear path by coefficients: no W_k of any client is ever formed.

A client's gradients lie in the span of F_s = Ã_kk x_s + B_k of its own training samples, so that after any local steps
    W_k = a W̄ + Σ_s b_s F_sᵀ        b_s ``[c]``, a number a that is the same for all clients
and an output is Ã_kk W_k x_s + C_k = a Ã_kk W̄ x_s + Σ_s' (Ã_kk x_s·F_s') b_s' + C_k: inner products that are known
before training. Weight decay, the proximal term and momentum act on (a, b) as they do on W_k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gfl_lightning.federated.local.linear import LinearPath
from gfl_lightning.federated.local.problem import LocalProblem, LocalResult, finite_only, residual, update_norms
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True, eq=False)
class LinearSpanPath(LinearPath):
    """Local training on ``[K, n, c]`` coefficients: a step costs n² for each client where `LinearPath` costs b d."""

    def __call__(self, problem: LocalProblem) -> LocalResult:
        """The I local steps of every client at once, then the average."""
        W, (a, b) = problem.weights[self.name], self._coefficients(problem)
        skipped, vote, (b,) = finite_only(problem.vote, b)
        norms = partial(self._norms, problem, a, b)
        vote = problem.counted(vote, skipped, norms)
        total = vote.sum()
        rest = 1 - total if problem.protection.touches_models else 0.0
        average = (a * total + rest) * W + self._spanned(problem, b * vote[:, None, None])
        return LocalResult({self.name: average}, skipped, b.new_zeros(len(b), 1, b.shape[2]))

    def models(self, problem: LocalProblem) -> Weights:
        """The weights of all clients after their local steps, stacked ``[K, …]``."""
        a, b = self._coefficients(problem)
        return {self.name: a * problem.weights[self.name] + b.mT @ self._span(problem)}

    @torch.inference_mode()
    def _coefficients(self, problem: LocalProblem) -> tuple[float, Tensor]:
        """a and b ``[K, n, c]`` after the local steps."""
        near, training, batches, lr = problem.neighbourhood, problem.training, problem.batches, problem.lr
        own, n = near.own[:, None, None], training.sample.shape[1]
        C = problem.offset.onto(near.gather(problem.exchange.uploaded_h)[:, None, :])
        start, gram = problem.exchange.h[training.sample] * own, self._gram(problem)
        decay, proximal, momentum = self.local.weight_decay, self.local.proximal, self.local.momentum
        a, pace, b = 1.0, 0.0, torch.zeros_like(start)
        velocity = torch.zeros_like(start) if momentum else None
        for step in range(problem.steps):
            output = torch.add(C, start, alpha=a)
            output = torch.addcmul(output, gram, b) if n == 1 else torch.baddbmm(output, gram, b)
            g = residual(training.loss, output, training.target, batches.step_weight(step, n))
            if decay or proximal:
                g.add_(b, alpha=decay + proximal)
            if velocity is not None:
                g = velocity.mul_(momentum).add_(g)
            pace = momentum * pace + decay * a + proximal * (a - 1)
            a, b = _within(a - lr * pace, b.dtype), b.sub_(g, alpha=lr)
        return a, b

    def _gram(self, problem: LocalProblem) -> Tensor:
        """Ã_kk x_s·F_s' ``[K, n, n]``."""
        own = problem.neighbourhood.own[:, None, None]
        x = self.table.graph.x[problem.training.sample] * own
        return x @ x.mT + x @ self._around(problem)[:, :, None]

    def _span(self, problem: LocalProblem) -> Tensor:
        """F_s of every client's training samples ``[K, n, d]``."""
        own = problem.neighbourhood.own[:, None, None]
        return self.table.graph.x[problem.training.sample] * own + self._around(problem)[:, None, :]

    def _spanned(self, problem: LocalProblem, b: Tensor) -> Tensor:
        """Σ_k Σ_s b_s F_sᵀ ``[c, d]``."""
        own = (b * problem.neighbourhood.own[:, None, None]).flatten(0, 1)
        x = self.table.graph.x[problem.training.sample.flatten()]
        return own.T @ x + b.sum(1).T @ self._around(problem)

    def _norms(self, problem: LocalProblem, a: float, b: Tensor) -> Tensor:
        """‖W_k − W̄‖ of each client ``[K]``."""
        stacked = {self.name: a * problem.weights[self.name] + b.mT @ self._span(problem)}
        return update_norms(problem.weights, stacked)


def _within(number: float, dtype: torch.dtype) -> float:
    """The number, infinite beyond what the precision holds, as it would be in a tensor."""
    return number if abs(number) <= torch.finfo(dtype).max else math.copysign(math.inf, number)
