"""The weights that a training keeps: those with the lowest validation loss so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True, eq=False)
class Best:
    """The best round so far.

    Args:
        round: its number; 0 where there is none yet.
        val_loss: its validation loss.
        weights: what is kept; nothing where there is no round yet.
        client_loss: the lowest validation loss of each client ``[N]``, where every client keeps weights of its own.
        shared: ĥ as they stood uploaded after that round ``[N, c]``, where clients share them.
    """

    round: int = 0
    val_loss: float = math.inf
    weights: Weights = field(default_factory=dict)
    client_loss: Tensor = field(default_factory=lambda: torch.empty(0))
    shared: Tensor = field(default_factory=lambda: torch.empty(0))
