"""Differential privacy of single samples in the clients' local steps."""

from __future__ import annotations

import math

from gfl_lightning.checks import require
from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.privacy.mechanisms.steps import StepNoise


class DPSGD(ProtectingCallback):
    """Local steps on Poisson samples, each sample's gradient bounded, Gaussian noise on their sum.

    For clients with many samples (SNC, SC). It protects single samples, so a guarantee needs `PrivacyBudget` with the
    unit ``sample``; the sampling rate, the model's ``batch_size`` over a client's samples, enters the accounting.

    >>> DPSGD(clip=0.5, noise_multiplier=2.0).stated
    {'steps': StepNoise(clip=0.5, noise_multiplier=2.0)}

    Args:
        clip: bound on the gradient of each sample.
        noise_multiplier: noise on the sum of gradients, in units of ``clip``; 0 is left for a calibrated budget.
    """

    def __init__(self, clip: float = 1.0, noise_multiplier: float = 0.0) -> None:
        require(0 < clip < math.inf, "clip", "be positive and finite", clip)
        super().__init__({"steps": StepNoise(clip, noise_multiplier)})
