"""κ² and σ_G²: how much the gradients of neighbours differ, and those of a client's batches."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.utils import subgraph

from gfl_lightning.federated.federation import Federation
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.models.encoders.encoder import Weights


def sample_gradients(federation: Federation, weights: Weights) -> tuple[Tensor, Tensor]:
    """∇ of each training sample's weighted loss, all representations at W ``[n, |W|]``, and its owner ``[n]``."""
    graph = federation.graph
    rows = graph.mask(Split.TRAIN).nonzero().flatten()
    with torch.enable_grad():
        W = {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
        loss = graph.losses(federation.logits_of(W)[rows], rows)
        slopes = [torch.autograd.grad(one, list(W.values()), retain_graph=True) for one in loss]
    return torch.stack([torch.cat([g.flatten() for g in slope]) for slope in slopes]), graph.client[rows]


def client_gradients(gradients: Tensor, owner: Tensor) -> Tensor:
    """∇F_k of each training client, ascending, from the gradients of its samples: ``[n, |W|], [n] → [K, |W|]``."""
    clients, place, counts = owner.unique(return_inverse=True, return_counts=True)
    total = gradients.new_zeros(len(clients), gradients.shape[1]).index_add_(0, place, gradients)
    return total / counts[:, None]


def kappa_squared(federation: Federation, gradients: Tensor) -> float:
    """κ² = Σ_{(i,j)∈E} ‖∇F_i − ∇F_j‖² over the edges among training clients, from ∇F ``[K, |W|]``.

    With λ_max(B_N L†) of their graph it bounds the spread: (1/K) Σ_k ‖∇F_k − ∇F‖² ≤ λ_max κ².
    """
    graph = federation.graph
    edges, weight = subgraph(
        graph.training_clients, graph.edge_index, graph.edge_weight, relabel_nodes=True, num_nodes=graph.num_clients
    )
    once = edges[0] < edges[1]
    squared = (gradients[edges[0, once]] - gradients[edges[1, once]]).double().square().sum(1)
    return float((squared if weight is None else squared * weight[once].double()).sum())


def batch_variance(gradients: Tensor, owner: Tensor, batch_size: int | None) -> float:
    """σ_G² = (1/K) Σ_k E‖g_batch − ∇F_k‖² for batches of b out of n_k samples, drawn without replacement.

    A batch mean of b out of n has the variance of one sample times (n − b) / (b (n − 1)).
    """
    clients, place, counts = owner.unique(return_inverse=True, return_counts=True)
    spread = (gradients - client_gradients(gradients, owner)[place]).double().square().sum(1)
    variance = spread.new_zeros(len(clients)).index_add_(0, place, spread) / counts
    b = counts if batch_size is None else counts.clamp(max=batch_size)
    factor = (counts - b).double() / (b * (counts - 1).clamp(min=1))
    return float((variance * factor).mean())
