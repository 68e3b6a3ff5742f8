"""The gradient of one client's loss with C_k and ∇C_k held fixed, for any encoder and aggregator, on torch.func.

With a learnable aggregator Z = Σ_l γ_l P^l H the server sends the aggregates of each hop, and a client's gradient is
    ∂/∂encoder = (Σ_l γ_l P^l_kk) Jᵀ r + Σ_l γ_l ∇C_k^{l}ᵀ r̄        ∂/∂γ_l = Σ_s r_s · (P^l_kk h_s + C_k^l).
A fixed aggregator is the case of one hop, Ã itself, with γ = 1 that is not trained.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vjp, vmap

from gfl_lightning.federated.protection.step_guard import PlainSteps
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.models.model import GAMMA

PULL = "pull"
"""Name of the coefficients of ∇C_k in the gradient, which stand beside the weights."""


def client_gradient(
    encoder: SizedEncoder,
    loss: Loss,
    W: Weights,
    x: Tensor,
    target: Tensor,
    weight: Tensor,
    own: Tensor,
    C: Tensor,
    grad_C: Weights,
    beside: Tensor | float = 0.0,
) -> Weights:
    """g = Σ_s (Ã_kk J_s + ∇C_k)ᵀ r_s of one client; no ∇C_k in V1.

    Args:
        encoder: Ψ_h.
        loss: what is lost on a label.
        W: W_k.
        x: the samples of the step ``[n, d]``.
        target: what the loss keeps of their labels ``[n, c]``.
        weight: of each in the step ``[n]``.
        own: Ã_kk, or (P^l)_kk of each hop ``[L]``.
        C: C_k of each hop ``[L, c]``.
        grad_C: ∇C_k of each hop by weight ``[L, c, …]``; nothing in V1.
        beside: what else is added to the outputs, and held fixed ``[n, c]``.
    """
    gamma = W.get(GAMMA, torch.ones_like(own))
    h, pull = vjp(lambda w: encoder(w, x), encoder.own(W))  # type: ignore[misc]  # three only with has_aux
    hop = own[:, None, None] * h + C[:, None, :]
    logits = torch.tensordot(gamma, hop, 1) + beside
    r = weight[:, None] * loss.residual(logits, target)
    (gradient,) = pull((gamma @ own) * r)
    asked = gamma[:, None] * r.sum(0)
    if grad_C:
        gradient = {n: g + torch.tensordot(asked, grad_C[n], 2) for n, g in gradient.items()}
    learned = {GAMMA: (hop * r).sum((1, 2))} if GAMMA in W else {}
    return {**gradient, **learned, PULL: asked}


def bounded_gradient(
    guard: PlainSteps,
    encoder: SizedEncoder,
    loss: Loss,
    W: Weights,
    x: Tensor,
    target: Tensor,
    weight: Tensor,
    loss_weight: Tensor,
    own: Tensor,
    C: Tensor,
    grad_C: Weights,
) -> Weights:
    """Σ_s weight_s min(1, C/‖g_s‖) g_s of one client, every g_s formed; ``loss_weight [n]`` weighs the losses."""

    def alone(x: Tensor, target: Tensor, loss_weight: Tensor) -> Weights:
        return client_gradient(encoder, loss, W, x, target, loss_weight, own, C, grad_C)

    each = vmap(alone)(x[:, None], target[:, None], loss_weight[:, None])
    squared = [g.flatten(1).square().sum(1) for name, g in each.items() if name != PULL]
    (counted,) = guard.bounded(weight, torch.stack(squared).sum(0).sqrt, torch.ones_like(weight)[:, None])
    counts = counted[:, 0]
    kept = {name: torch.where(counts[:, None] > 0, g.flatten(1), 0) for name, g in each.items()}
    return {name: (guard.exactly(counts) @ guard.exactly(g)).view(each[name].shape[1:]) for name, g in kept.items()}
