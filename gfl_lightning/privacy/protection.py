"""What is done to a client's uploads before they leave it: bounds and Gaussian noise, as typed, checked choices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gfl_lightning.checks import require

Unit = Literal["client", "sample"]


@dataclass(frozen=True)
class Protection:
    """Bounds on the norm of what a client contributes, and the noise added to it; the default does nothing.

    The paper's "hn" is ``hidden_std`` alone and its "hn_gn" is ``hidden_std`` and ``jacobian_std``: noise without
    bounds, which hides something and guarantees nothing.

    Args:
        hidden_std: standard deviation of the noise on every entry of ĥ_j.
        jacobian_std: of the noise on every entry of ∇ĥ_j.
        update_std: of the noise on every entry of W_k − W̄.
        hidden_clip: bound on ‖ĥ_j‖.
        jacobian_clip: bound on ‖∇ĥ_j‖ over all weights together.
        update_clip: bound on ‖W_k − W̄‖ over all weights together.
        step_clip: bound on the gradient of each sample in a local step (DP-SGD).
        noise_multiplier: noise of a local step on the sum of bounded gradients, in units of ``step_clip``.
        unit: whose contribution to ĥ_j and ∇ĥ_j is bounded: the ``client``'s mean, or each ``sample`` in it.
    """

    hidden_std: float = 0.0
    jacobian_std: float = 0.0
    update_std: float = 0.0
    hidden_clip: float = math.inf
    jacobian_clip: float = math.inf
    update_clip: float = math.inf
    step_clip: float = math.inf
    noise_multiplier: float = 0.0
    unit: Unit = "client"

    def __post_init__(self) -> None:
        for name in ("hidden_std", "jacobian_std", "update_std", "noise_multiplier"):
            value = getattr(self, name)
            require(0 <= value < math.inf, name, "be finite and at least 0", value)
        for name in ("hidden_clip", "jacobian_clip", "update_clip", "step_clip"):
            value = getattr(self, name)
            require(value > 0, name, "be positive", value)
        require(
            self.noise_multiplier == 0 or math.isfinite(self.step_clip),
            "step_clip",
            "be finite where noise_multiplier is not 0, as the noise is in its units",
            self.step_clip,
        )
        require(self.unit in ("client", "sample"), "unit", "be one of client, sample", self.unit)

    @property
    def touches_hidden(self) -> bool:
        """Whether ĥ_j differs from what the client computed."""
        return self.hidden_std > 0 or math.isfinite(self.hidden_clip)

    @property
    def touches_jacobian(self) -> bool:
        """Whether ∇ĥ_j does."""
        return self.jacobian_std > 0 or math.isfinite(self.jacobian_clip)

    @property
    def touches_update(self) -> bool:
        """Whether W_k does."""
        return self.update_std > 0 or math.isfinite(self.update_clip)

    @property
    def touches_steps(self) -> bool:
        """Whether local steps are DP-SGD's."""
        return math.isfinite(self.step_clip)

    @property
    def touches_models(self) -> bool:
        """Whether anything about the clients' models is protected, so that no vote may depend on data."""
        return self.touches_update or self.touches_steps

    @property
    def is_inert(self) -> bool:
        """Whether nothing is changed at all."""
        return not (self.touches_hidden or self.touches_jacobian or self.touches_update or self.touches_steps)
