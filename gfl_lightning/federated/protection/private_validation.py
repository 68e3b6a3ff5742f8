"""A validation loss that may steer a protected fit: bounded by each client, told under noise, then averaged."""

from __future__ import annotations

import torch
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.privacy.noise_source import NoiseSource
from gfl_lightning.privacy.protection import Protection


def private_loss(graph: ClientGraph, logits: Tensor, protection: Protection, source: NoiseSource) -> float:
    """mean_j (min(C, mean_s loss_s) + e_j) over the clients with validation samples s, from logits ``[S, c]``.

    With the unit ``sample`` every sample's loss is bounded instead. A loss that is not finite counts as C.
    """
    rows = graph.mask(Split.VAL).nonzero().flatten()
    losses, owner = graph.losses(logits[rows], rows).double(), graph.client[rows]
    clients, place = torch.unique(owner, return_inverse=True)
    bound = protection.validation.clip
    if protection.unit == "sample":
        losses = _bounded(losses, bound)
    count = torch.bincount(place, minlength=len(clients)).to(losses)
    means = _bounded(losses.new_zeros(len(clients)).index_add_(0, place, losses) / count, bound)
    return float(protection.validation.released(means, source).double().mean())


def _bounded(losses: Tensor, bound: float) -> Tensor:
    return torch.nan_to_num(losses, bound, bound, bound).clamp(0, bound)
