"""How strongly levels of clients are held to 0, from what all training samples together leave unexplained.

Suppose that client k has a level b_k with variance τ² in each output. With r_s the residuals of its samples without it
and h_s the curvatures of their losses, r_s ≈ noise − h_s b_k, so that products of *different* samples of a client tell
τ² and nothing of the noise (DerSimonian and Laird's method of moments, for any loss):

    τ² = Σ_k (‖Σ_s r_s‖² − Σ_s ‖r_s‖²) / Σ_k (tr (Σ_s h_s)² − Σ_s tr h_s²),
    φ = (Σ ‖r_s‖² − τ² Σ tr h_s²) / Σ tr h_s,          λ = φ / τ²,

φ being the variance of the noise by that of the loss: σ² for squared error, where λ is then the best linear predictor's
σ²/τ². A client sends five sums to the server, in every round.

Nothing but λ holds the mean of the levels to 0: local steps that see levels may let it wander, to b_k = m at every
client. The larger m, the larger τ² and the smaller λ; and clients without a level, who join later, are off by m. Where
labels are numbers and the encoder has a bias the server therefore tells m ≈ −Σ_k Σ_s r_s / Σ_k Σ_s h_s too, Newton's
step from 0 for one level of all, kept within ±1. Local steps leave it out of the levels, so that the bias takes it.

Classes have φ = 1, and probabilities bend: with a margin's level of variance 2τ², E (σ(b) − ½)² is less than 2τ²/16. By
σ(b) ≈ Φ(√κ b), κ = (16 √3 / 15 π)², it is arcsin(ρ)/2π with ρ = 2κτ²/(1 + 2κτ²), which is solved for τ².
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.loss import Loss

KAPPA = (16 * math.sqrt(3) / (15 * math.pi)) ** 2
NUMBERS_SENT = 5
LEAST, MOST = 0.1, 300.0
"""What λ is kept between: samples of a client that hold its level half way to 0."""


def level_strength(loss: Loss, sent: Tensor) -> float:
    """λ from what all clients send ``[K, 5]``.

    >>> from gfl_lightning.graphs.losses.squared_error import SquaredError
    >>> y = torch.tensor([[3.0, 1.0], [-1.0, -3.0]])[..., None]  # level variance 3, as 3·1 twice; E r² = 5, so σ² = 2
    >>> round(level_strength(SquaredError(), sums(SquaredError(), torch.zeros(2, 2, 1), y, torch.ones(2, 2))), 4)
    0.6667
    """
    variance, noise = moments(loss, sent)
    if isinstance(loss, CrossEntropy):
        variance, noise = unbent(variance), 1.0
    return min(max(noise / variance, LEAST), MOST) if variance > 0 else MOST


def sums(loss: Loss, z: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """What each client sends: ‖Σ r‖², Σ ‖r‖², tr (Σ h)², Σ tr h² and Σ tr h over its samples ``[K, 5]``.

    Where labels are numbers the first is Σ r itself. Outputs ``z [K, n, c]`` are those without levels; weights
    ``[K, n]`` are 0 where there is no sample.
    """
    there = weight > 0
    r = torch.where(there[..., None], weight[..., None] * loss.residual(z, target), 0)
    h = torch.where(there[..., None, None], weight[..., None, None] * loss.curvature(z, target), 0)
    H = h.sum(1)
    columns = (
        r.sum(1)[:, 0] if loss.of_numbers else r.sum(1).square().sum(1),
        r.square().sum((1, 2)),
        (H * H.mT).sum((1, 2)),
        (h * h.mT).sum((1, 2, 3)),
        H.diagonal(dim1=1, dim2=2).sum(1),
    )
    return torch.stack(columns, 1)


def common_level(sent: Tensor) -> float:
    """m from what all clients send ``[K, 5]``, where labels are numbers.

    >>> from gfl_lightning.graphs.losses.squared_error import SquaredError
    >>> y = torch.tensor([[0.3, 0.1], [0.1, -0.1]])[..., None]
    >>> round(common_level(sums(SquaredError(), torch.zeros(2, 2, 1), y, torch.ones(2, 2))), 4)
    0.1
    """
    total = sent.sum(0)
    return min(max(-float(total[0] / total[4]), -1.0), 1.0) if total[4] > 0 else 0.0


def moments(loss: Loss, sent: Tensor) -> tuple[float, float]:
    """τ² and φ from what all clients send ``[K, 5]``."""
    rr = float((sent[:, 0].square() if loss.of_numbers else sent[:, 0]).sum())
    r2, hh, h2, h = sent[:, 1:].sum(0).tolist()
    pairs = hh - h2
    variance = max(0.0, (rr - r2) / pairs) if pairs > 0 else 0.0
    return variance, max(0.0, r2 - variance * h2) / h if h > 0 else 1.0


def unbent(variance: float) -> float:
    """τ² of levels under a softmax from what τ² would be, were probabilities straight lines.

    >>> round(unbent(0.01), 4), round(unbent(0.8), 2)
    (0.0114, 2.06)
    """
    rho = math.sin(min(2 * math.pi * 2 * variance / 16, 0.499 * math.pi))
    return rho / (1 - rho) / (2 * KAPPA)
