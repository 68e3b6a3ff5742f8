"""All randomness of a federation but its noise is a function of (seed, stream, index), so that nothing need be saved.

What hides something is drawn from a key instead (privacy/noise_key.py): noise, and the Poisson samples of DP-SGD.
"""

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


def generator(seed: int, stream: Stream, index: int = 0, *finer: int) -> torch.Generator:
    """A fresh generator for draw number ``index`` of a stream, or for a finer part of that draw."""
    state = np.random.SeedSequence([seed, int(stream), index], spawn_key=finer).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)
