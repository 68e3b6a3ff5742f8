"""What a blurred reading of a record says to someone who knows records like it."""

from __future__ import annotations

import torch
from torch import Tensor

AS_MANY = 30


def sharpened(reading: Tensor, variance: float, public_x: Tensor, spread: float = 1.0) -> Tensor:
    """x̂_w = x̄_w + v_w/(v_w + s²) (reading_w − x̄_w) ``[d]``: the posterior mean where features and noise are normal.

    An exact reading stays as it is; of one that is noise alone the mean public record is left. The variance v_w of a
    feature among public records is taken as if `AS_MANY` more records had all features' mean variance, as few records
    say little about rare features; of a single record, all features are taken to vary as they do from one to another.

    >>> x = torch.tensor([[0.0, 1.0], [0.0, 3.0]])
    >>> sharpened(torch.tensor([5.0, 5.0]), 0.0, x), sharpened(torch.tensor([5.0, 5.0]), 1e9, x).round()
    (tensor([5., 5.]), tensor([0., 2.]))

    Args:
        reading: a record with noise ``[d]``.
        variance: s², of the noise in each of its features.
        public_x: records like it ``[P, d]``.
        spread: the variance of what is read, as a share of a single record's; less for a mean of several.
    """
    if variance <= 0 or not len(public_x):
        return reading
    mean = public_x.mean(0)
    if len(public_x) == 1:
        mean = (mean + AS_MANY * mean.mean()) / (1 + AS_MANY)
    return mean + trust(variance, public_x, spread) * (reading - mean)


def trust(variance: float, public_x: Tensor, spread: float = 1.0) -> Tensor:
    """v_w/(v_w + s²) ``[d]``: how much a reading with noise of variance s² says, beside what is known of records."""
    if len(public_x) == 1:  # whose features tell how much features vary
        v = public_x.var(correction=0).expand(public_x.shape[1])
    else:
        v = public_x.var(0, correction=0)
        v = (len(public_x) * v + AS_MANY * v.mean()) / (len(public_x) + AS_MANY)
    return spread * v / (spread * v + variance).clamp_min(torch.finfo(v.dtype).tiny)


def unscaled(reading: Tensor, variance: float, public_x: Tensor) -> tuple[Tensor, float]:
    """κ x + noise of a known variance → x + noise / κ and its variance, with κ ≤ 1 from the length of what was read.

    A bound on uploads shortens records by a κ that the adversary does not know. Where all length is noise, nothing is
    left: zeros of infinite variance.

    >>> unscaled(torch.tensor([2.0, 0.0]), 0.0, torch.tensor([[4.0, 0.0], [0.0, 4.0]]))
    (tensor([4., 0.]), 0.0)
    """
    usual = float(public_x.square().sum(1).mean())
    signal = float(reading.square().sum()) - len(reading) * variance
    if signal <= 0:
        return torch.zeros_like(reading), torch.inf
    scale = min(1.0, (signal / max(usual, torch.finfo(reading.dtype).tiny)) ** 0.5)
    return reading / scale, variance / scale**2
