"""Differential privacy of what clients upload: the paper's noise, and bounds that turn noise into a guarantee."""

from __future__ import annotations

import math
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from callbacks.federation import federated
from gfl_lightning.privacy.protection import Protection


class DPNoise(Callback):
    """Gaussian noise on every entry of ĥ_j, ∇ĥ_j and W_k − W̄, fresh each round, after bounding their norms.

    The paper's "hn" is ``hidden_std`` alone, "hn_gn" ``hidden_std`` and ``jacobian_std``: without bounds nothing is
    guaranteed, and the summary says so. All numbers are standard deviations and norms in the units of the data.

    Args:
        hidden_std: noise on the representations ĥ_j.
        jacobian_std: noise on their Jacobians ∇ĥ_j; V1 shares none.
        update_std: noise on the model updates W_k − W̄ (DP-FedAvg).
        hidden_clip: bound on ‖ĥ_j‖.
        jacobian_clip: bound on ‖∇ĥ_j‖.
        update_clip: bound on ‖W_k − W̄‖.
    """

    def __init__(
        self,
        hidden_std: float = 0.0,
        jacobian_std: float = 0.0,
        update_std: float = 0.0,
        hidden_clip: float = math.inf,
        jacobian_clip: float = math.inf,
        update_clip: float = math.inf,
    ) -> None:
        super().__init__()
        self._options: dict[str, Any] = {
            "hidden_std": hidden_std,
            "jacobian_std": jacobian_std,
            "update_std": update_std,
            "hidden_clip": hidden_clip,
            "jacobian_clip": jacobian_clip,
            "update_clip": update_clip,
        }
        Protection(**self._options)  # refuses what is out of range

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Protect the uploads of the federation that is about to be built."""
        federated(self, pl_module).protect(**self._options)
