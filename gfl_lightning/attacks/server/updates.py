"""What W_k − W̄ is made of: −(W_k − W̄)/η = Σ_i Σ_s (Ã_kk J_s + ∇C_k)ᵀ r_s, with ∇C_k as the server itself sent it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from gfl_lightning.attacks.views import Round, View
from gfl_lightning.federated.protocol.messages import JacobianAggregate, ModelUpload

STILL = 1e-4


class Update(NamedTuple):
    """A client's step and what the server had sent for it.

    Args:
        step: −(W_k − W̄)/η by weight.
        compensation: ∇C_k by weight ``[c, …]``; nothing in V1 and where nobody sees another.
    """

    step: dict[str, Tensor]
    compensation: dict[str, Tensor]


def updates_of(view: View, most: int) -> Iterator[tuple[Round, Update]]:
    """The first rounds in which the client trained, with its updates."""
    found = ((one, update_of(view, one)) for one in view)
    return islice(((one, update) for one, update in found if update is not None), most)


def update_of(view: View, one: Round) -> Update | None:
    """The update of a round, if the client trained in it."""
    model, sent = one.find(ModelUpload), one.find(JacobianAggregate)
    if model is None:
        return None
    step = {name: (one.weights[name] - weight) / view.lr for name, weight in model.weights.items()}
    return Update(step, {} if sent is None else dict(sent.grad_C))


class Split(NamedTuple):
    """Σ r ``[c]``, and the two factors of what the client's own sample adds to its feature weight, u vᵀ."""

    residual: Tensor
    u: Tensor
    v: Tensor


def split_rank_one(step: Tensor, compensation: Tensor, iterations: int) -> Split:
    """step ≈ u vᵀ + Σ_o R_o compensation_o, ``[m, d], [c, m, d]``: least squares by turns, until Σ r stands.

    The server knows the compensation to the bit, noise that it holds included, so noise on ∇ĥ does not blur W_k.
    """
    c = len(compensation)
    flat = compensation.flatten(1)
    gram = flat @ flat.T
    ridge = 1e-8 * gram.diagonal().mean().clamp_min(torch.finfo(step.dtype).tiny)
    gram = gram + ridge * torch.eye(c, dtype=step.dtype)
    own, R = torch.zeros_like(step), step.new_zeros(c)
    for _ in range(iterations):
        before = R
        R = torch.linalg.solve(gram, flat @ (step - own).flatten())
        left = step - torch.tensordot(R, compensation, 1)
        u, v = leading_pair(left)
        own = torch.outer(u, v)
        if float((R - before).norm()) <= STILL * float(R.norm()):
            break
    return Split(R, u, v)


def leading_pair(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """u vᵀ, the best approximation of rank one, with ‖v‖ = 1; by the smaller of the two Gram matrices."""
    _, vectors = torch.linalg.eigh((matrix @ matrix.T).double())
    u = vectors[:, -1].to(matrix)
    v = u @ matrix
    scale = v.norm().clamp_min(torch.finfo(v.dtype).tiny)
    return u * scale, v / scale


def solved_residual(own: float, update: Update, jacobian: dict[str, Tensor]) -> Tensor:
    """Σ r ``[c]`` by least squares over all weights: −ΔW/η = (Ã_kk ∇ĥ_k + ∇C_k)ᵀ Σ r, whatever the encoder."""
    blocks = []
    for name, J in jacobian.items():
        sent = update.compensation.get(name)
        blocks.append((own * J + (0 if sent is None else sent)).flatten(1))
    step = torch.cat([update.step[name].flatten() for name in jacobian])
    return torch.linalg.lstsq(torch.cat(blocks, 1).T, step[:, None]).solution[:, 0]
