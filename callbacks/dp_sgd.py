"""Differential privacy of single samples in the clients' local steps."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from callbacks.federation import federated
from gfl_lightning.checks import require
from gfl_lightning.privacy.protection import Protection


class DPSGD(Callback):
    """Local steps on Poisson samples, each sample's gradient bounded, Gaussian noise on their sum.

    For clients with many samples (SNC, SC). It protects single samples, so a guarantee needs `PrivacyBudget` with the
    unit ``sample``; the sampling rate, the model's ``batch_size`` over a client's samples, enters the accounting.

    Args:
        clip: bound on the gradient of each sample.
        noise_multiplier: noise on the sum of gradients, in units of ``clip``; 0 is left for a calibrated budget.
    """

    def __init__(self, clip: float = 1.0, noise_multiplier: float = 0.0) -> None:
        super().__init__()
        require(0 < clip < float("inf"), "clip", "be positive and finite", clip)
        self._options: dict[str, Any] = {"step_clip": clip, "noise_multiplier": noise_multiplier}
        Protection(**self._options)  # refuses what is out of range

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Protect the local steps of the federation that is about to be built."""
        federated(self, pl_module).protect(**self._options)
