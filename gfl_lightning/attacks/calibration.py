"""How far the logits of a model are to be believed, by how they fit public labels."""

from __future__ import annotations

import torch
from torch import Tensor

POWERS = range(-12, 1)
MORE = 2.0
"""By how much a fit must be likelier than that without logits, as of a ratio test at 95 %."""


def believed(h: Tensor, y: Tensor, log_prior: Tensor) -> float:
    """argmax_τ Σ_p log softmax(τ h_p + log π_p)[y_p] over τ ∈ {0, 2⁻¹², …, 1}: 0 where logits say nothing of labels.

    >>> y = torch.tensor([0, 1, 0, 1, 0, 1])
    >>> believed(3 * torch.eye(2)[y], y, torch.zeros(2)), believed(3 * torch.eye(2)[1 - y], y, torch.zeros(2))
    (1.0, 0.0)

    Args:
        h: logits of public records, blurred as those are that will be believed ``[P, c]``.
        y: their labels ``[P]``.
        log_prior: log π, what is thought of classes without logits ``[c]`` or ``[P, c]``.
    """
    fits = {
        tau: float(torch.log_softmax(tau * h + log_prior, -1).gather(1, y[:, None]).sum())
        for tau in (0.0, *(2.0**power for power in POWERS))
    }
    best = max(fits, key=lambda tau: fits[tau])
    return best if fits[best] >= fits[0.0] + MORE else 0.0
