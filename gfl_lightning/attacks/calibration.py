"""Whether the logits of a model are to be believed, by how they fit public labels."""

from __future__ import annotations

import torch
from torch import Tensor

POWERS = range(-12, 1)
MORE = 2.0
"""By how much a fit must be likelier than that without logits, as of a ratio test at 95 %."""


def believable(h: Tensor, y: Tensor, shares: Tensor) -> bool:
    """max_τ Σ_p log softmax(τ h_p + log π)[y_p] ≥ Σ_p log π[y_p] + 2, τ ∈ {2⁻¹², …, 1}: whether logits tell labels.

    >>> y = torch.tensor([0, 1, 0, 1, 0, 1])
    >>> half = torch.full((2,), 0.5)
    >>> believable(3 * torch.eye(2)[y], y, half), believable(3 * torch.eye(2)[1 - y], y, half)
    (True, False)

    Args:
        h: logits of public records, blurred as those are that will be believed ``[P, c]``.
        y: their labels ``[P]``.
        shares: π, of the classes among them ``[c]``.
    """
    prior = shares.clamp_min(torch.finfo(shares.dtype).tiny).log()

    def fit(tau: float) -> float:
        return float(torch.log_softmax(tau * h + prior, -1).gather(1, y[:, None]).sum())

    return max(fit(2.0**power) for power in POWERS) >= fit(0.0) + MORE
