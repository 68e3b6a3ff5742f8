"""Scale a vector so that its norm is at most C: v · min(1, C/‖v‖)."""

from __future__ import annotations

import torch
from torch import Tensor


def clip_scale(norm: Tensor, bound: float) -> Tensor:
    """min(1, C/‖v‖) for each norm; 0 where the norm is not finite, so that such a vector contributes nothing."""
    scale = (bound / norm.clamp_min(torch.finfo(norm.dtype).tiny)).clamp_max(1)
    return torch.where(norm.isfinite(), scale, 0)


def row_norms(values: Tensor) -> Tensor:
    """‖v‖ of each row, summed in pairs: `vector_norm` adds up one after another and loses what is small beside it."""
    return values.square().sum(1).sqrt()


def clipped_rows(values: Tensor, bound: float) -> Tensor:
    """Each row bounded, ``[rows, m]``."""
    return scaled_rows(values, clip_scale(row_norms(values), bound))


def scaled_rows(values: Tensor, scale: Tensor) -> Tensor:
    """Each row times its scale; 0 where that is 0, whatever the row holds."""
    return torch.where(scale[:, None] > 0, values * scale[:, None], 0)
