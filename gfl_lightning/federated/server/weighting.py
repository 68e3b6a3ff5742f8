"""How much each client counts in the average."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from gfl_lightning.engine.training_set import TrainingSet

Weighting = Literal["uniform", "samples"]
WEIGHTINGS = ("uniform", "samples")


def votes(training: TrainingSet, weighting: Weighting) -> Tensor:
    """Weight of each training client in the average ``[K]``: uniform (the paper), or by its number of samples."""
    counts = training.counts.to(training.target.dtype)
    return rescaled(counts if weighting == "samples" else torch.ones_like(counts))


def rescaled(vote: Tensor) -> Tensor:
    """Votes that sum to 1 again, or all 0 where there are none left."""
    return vote / vote.sum().clamp_min(torch.finfo(vote.dtype).tiny)
