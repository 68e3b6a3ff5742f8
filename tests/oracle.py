"""Algorithm 1 line by line: a loop over clients with autograd Jacobians, sharing no algebra with the engine.

It takes from the engine only what is random: who takes part in a round and which samples form a batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.graphs.client_graph import ClientGraph, Split

Weights = dict[str, Tensor]
EncoderFunction = Callable[[Weights, Tensor], Tensor]


def dense_powers(graph: ClientGraph, M: int) -> Tensor:
    """P^0 … P^M, ``[M+1, N, N]``, from the definition of P."""
    A = torch.eye(graph.num_clients, dtype=graph.x.dtype)
    source, target = graph.edge_index
    A[source, target] = 1 if graph.edge_weight is None else graph.edge_weight.to(A)
    D = A.sum(1) ** -0.5
    P = D[:, None] * A * D
    return torch.stack([torch.linalg.matrix_power(P, i) for i in range(M + 1)])


class Client:
    """A client with its own samples and its own model."""

    def __init__(self, graph: ClientGraph, number: int, encoder: EncoderFunction) -> None:
        mine = graph.client == number
        self.number = number
        self.encoder = encoder
        self.shared_x = graph.x[mine & graph.shared]
        train = mine & graph.mask(Split.TRAIN)
        self.x, self.y = graph.x[train], graph.y[train]
        self.weight = torch.ones_like(self.x[:, 0]) if graph.weight is None else graph.weight[train]
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
    ) -> Weights:
        """I local SGD steps with C_k and ∇C_k (of each hop) held fixed; ``batches`` are indices of own samples."""
        Wk = {name: w.clone() for name, w in W.items()}
        velocity = {name: torch.zeros_like(w) for name, w in W.items()}
        for batch in batches:
            x, y, weight = self.x[batch], self.y[batch], self.weight[batch]
            gamma = Wk.get("gamma", torch.ones(1, dtype=x.dtype))
            g = {name: torch.zeros_like(w) for name, w in W.items()}
            for s in range(len(x)):
                leaves = {name: w.clone().requires_grad_() for name, w in Wk.items() if name != "gamma"}
                h = self.encoder(leaves, x[s])
                hop = own[:, None] * h.detach() + C
                y_hat = torch.softmax(gamma @ hop, 0)
                r = weight[s] * (y_hat - F.one_hot(y[s], len(y_hat)).to(y_hat))
                pulled = torch.autograd.grad((gamma @ own) * h @ r, list(leaves.values()))
                for name, p in zip(leaves, pulled, strict=True):
                    g[name] += p / len(x)
                    if grad_C is not None:
                        for l, jacobian in enumerate(grad_C):
                            g[name] += gamma[l] * torch.tensordot(r, jacobian[name], 1) / len(x)
                if "gamma" in Wk:
                    g["gamma"] += hop @ r / len(x)
            for name, w in Wk.items():
                total = g[name] + weight_decay * w + proximal * (w - W[name])
                velocity[name] = momentum * velocity[name] + total
                Wk[name] = w - lr * velocity[name]
        return Wk


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
    **optimizer: float,
) -> Weights:
    """One round; ``powers [L, N, N]`` is Ã alone (L = 1), or P^0 … P^M for a learnable aggregator."""
    for j in sharing:
        clients[j].share(W)
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
        models.append(clients[k].train(W, own, C, grad_C if compensated else None, lr, batches[k], **optimizer))
        votes.append(float(len(clients[k].x)) if by_samples else 1.0)
    return {name: sum(vote * model[name] for vote, model in zip(votes, models, strict=True)) / sum(votes) for name in W}
