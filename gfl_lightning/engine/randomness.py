"""All randomness of a federation is a function of (seed, stream, index), so that nothing need be saved."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch


class Stream(IntEnum):
    """What a random draw is for; different streams of one seed are independent."""

    WEIGHTS = 0
    BATCHES = 1
    TRAINING_CLIENTS = 2
    SHARING_CLIENTS = 3
    HIDDEN_NOISE = 4
    JACOBIAN_NOISE = 5
    UPDATE_NOISE = 6
    STEP_NOISE = 7
    POISSON_BATCHES = 8


def generator(seed: int, stream: Stream, index: int = 0, *finer: int) -> torch.Generator:
    """A fresh generator for draw number ``index`` of a stream, or for a finer part of that draw."""
    state = np.random.SeedSequence([seed, int(stream), index], spawn_key=finer).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)
