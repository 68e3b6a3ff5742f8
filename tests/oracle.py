"""Algorithm 1 line by line: a loop over clients with autograd Jacobians, sharing no algebra with the engine.

It takes from the engine only what is random: who takes part in a round and which samples form a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.graphs.client_graph import ClientGraph, Split

Weights = dict[str, Tensor]
EncoderFunction = Callable[[Weights, Tensor], Tensor]
Residual = Callable[[Tensor, Tensor], Tensor]


def dense_powers(graph: ClientGraph, M: int) -> Tensor:
    """P^0 … P^M, ``[M+1, N, N]``, from the definition of P."""
    A = torch.eye(graph.num_clients, dtype=graph.x.dtype)
    source, target = graph.edge_index
    A[source, target] = 1 if graph.edge_weight is None else graph.edge_weight.to(A)
    D = A.sum(1) ** -0.5
    P = D[:, None] * A * D
    return torch.stack([torch.linalg.matrix_power(P, i) for i in range(M + 1)])


def of_classes(z: Tensor, y: Tensor) -> Tensor:
    """ŷ − y of one sample."""
    y_hat = torch.softmax(z, 0)
    return y_hat - F.one_hot(y, len(y_hat)).to(y_hat)


class Client:
    """A client with its own samples and its own model."""

    def __init__(
        self, graph: ClientGraph, number: int, encoder: EncoderFunction, residual: Residual | None = None
    ) -> None:
        mine = graph.client == number
        self.number = number
        self.encoder = encoder
        self.residual = residual or of_classes
        self.shared_x = graph.x[mine & graph.shared]
        train = mine & graph.mask(Split.TRAIN)
        self.x, self.y = graph.x[train], graph.y[train]
        self.weight = graph.weight[train]
        self.h: Tensor | None = None
        self.jacobian: Weights | None = None

    def share(self, W: Weights) -> None:
        """ĥ = mean_s Ψ_h(x_s; W̄) and its Jacobian, by autograd, one class at a time."""
        leaves = {name: w.clone().requires_grad_() for name, w in W.items() if name != "gamma"}
        h = self.encoder(leaves, self.shared_x).mean(0)
        rows = [torch.autograd.grad(h[o], list(leaves.values()), retain_graph=True) for o in range(len(h))]
        self.h = h.detach()
        self.jacobian = {name: torch.stack([row[i] for row in rows]) for i, name in enumerate(leaves)}

    def train(
        self,
        W: Weights,
        own: Tensor,
        C: Tensor,
        grad_C: list[Weights] | None,
        lr: float,
        batches: list[Tensor],
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        proximal: float = 0.0,
        step_clip: float = math.inf,
        expected_batch: float | None = None,
        step_noise: list[Weights] | None = None,
        beside: Tensor | None = None,
    ) -> Weights:
        """I local SGD steps with C_k and ∇C_k (of each hop) held fixed; ``batches`` are indices of own samples.

        DP-SGD: each sample's gradient is bounded, the sum divided by ``expected_batch``, ``step_noise`` added. What is
        ``beside`` the graph in the outputs of own training samples ``[n, c]`` stays as it is.
        """
        Wk = {name: w.clone() for name, w in W.items()}
        velocity = {name: torch.zeros_like(w) for name, w in W.items()}
        for step, batch in enumerate(batches):
            x, y, weight = self.x[batch], self.y[batch], self.weight[batch]
            size = len(x) if expected_batch is None else expected_batch
            gamma = Wk.get("gamma", torch.ones(1, dtype=x.dtype))
            g = {name: torch.zeros_like(w) for name, w in W.items()}
            for s in range(len(x)):
                leaves = {name: w.clone().requires_grad_() for name, w in Wk.items() if name != "gamma"}
                h = self.encoder(leaves, x[s])
                hop = own[:, None] * h.detach() + C
                r = weight[s] * self.residual(gamma @ hop + (0 if beside is None else beside[batch][s]), y[s])
                pulled = torch.autograd.grad((gamma @ own) * h @ r, list(leaves.values()))
                alone = dict(zip(leaves, pulled, strict=True))
                if grad_C is not None:
                    for l, jacobian in enumerate(grad_C):
                        for name in leaves:
                            alone[name] = alone[name] + gamma[l] * torch.tensordot(r, jacobian[name], 1)
                if "gamma" in Wk:
                    alone["gamma"] = hop @ r
                for name, part in bounded(alone, step_clip).items():
                    g[name] += part / size
            if step_noise is not None:
                g = {name: part + step_noise[step][name] for name, part in g.items()}
            for name, w in Wk.items():
                total = g[name] + weight_decay * w + proximal * (w - W[name])
                velocity[name] = momentum * velocity[name] + total
                Wk[name] = w - lr * velocity[name]
        return Wk


def bounded(parts: Weights, bound: float) -> Weights:
    """A record of tensors scaled down as one vector."""
    norm = math.sqrt(sum(float((part**2).sum()) for part in parts.values()))
    return {name: part * (bound / norm) if norm > bound else part for name, part in parts.items()}


def run_round(
    clients: list[Client],
    powers: Tensor,
    W: Weights,
    sharing: list[int],
    training: list[int],
    batches: dict[int, list[Tensor]],
    lr: float,
    compensated: bool = True,
    by_samples: bool = False,
    protect: Callable[[Client], None] = lambda client: None,
    update_clip: float = math.inf,
    update_noise: Weights | None = None,
    private_steps: dict[int, dict[str, Any]] | None = None,
    personal: Callable[[Client, Weights, Tensor, Tensor], tuple[float, Tensor]] | None = None,
    **optimizer: float,
) -> Weights:
    """One round; ``powers [L, N, N]`` is Ã alone (L = 1), or P^0 … P^M for a learnable aggregator.

    ``protect`` changes what a client has just computed before it is shared, ``update_clip`` bounds W_k − W̄ and
    ``update_noise`` is what the clients' noise adds to the average. ``personal`` tells from W̄, Ã_kk and C_k a client's
    gate and what its own terms add to the outputs of its training samples.
    """
    for j in sharing:
        clients[j].share(W)
        protect(clients[j])
    models, votes = [], []
    for k in training:
        C = torch.zeros(len(powers), len(clients[sharing[0]].h), dtype=powers.dtype)  # type: ignore[arg-type]
        grad_C = [
            {name: torch.zeros(C.shape[1], *w.shape, dtype=w.dtype) for name, w in W.items() if name != "gamma"}
            for _ in powers
        ]
        for l, A in enumerate(powers):
            for j, other in enumerate(clients):
                if j != k and other.h is not None and other.jacobian is not None:
                    C[l] += A[k, j] * other.h
                    if compensated:
                        for name in grad_C[l]:
                            grad_C[l][name] += A[k, j] * other.jacobian[name]
        own = powers[:, k, k]
        beside = None
        if personal is not None:
            gate, beside = personal(clients[k], W, own, C)
            own, C = gate * own + (1 - gate), gate * C
            grad_C = [{name: gate * part for name, part in hop.items()} for hop in grad_C]
        steps = optimizer | (private_steps or {}).get(k, {})
        Wk = clients[k].train(W, own, C, grad_C if compensated else None, lr, batches[k], beside=beside, **steps)
        update = bounded({name: Wk[name] - w for name, w in W.items()}, update_clip)
        models.append({name: W[name] + change for name, change in update.items()})
        votes.append(float(len(clients[k].x)) if by_samples else 1.0)
    average = {
        name: sum(vote * model[name] for vote, model in zip(votes, models, strict=True)) / sum(votes) for name in W
    }
    return average if update_noise is None else {name: w + update_noise[name] for name, w in average.items()}
