"""Differential privacy of what clients upload: the paper's noise, and bounds that turn noise into a guarantee."""

from __future__ import annotations

import math

from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.privacy.protection import Protection


class DPNoise(ProtectingCallback):
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
        checked = Protection(hidden_std, jacobian_std, update_std, hidden_clip, jacobian_clip, update_clip)
        noise = {name: getattr(checked, name) for name in ("hidden_std", "jacobian_std", "update_std")}
        bounds = {name: getattr(checked, name) for name in ("hidden_clip", "jacobian_clip", "update_clip")}
        super().__init__(noise | bounds)
