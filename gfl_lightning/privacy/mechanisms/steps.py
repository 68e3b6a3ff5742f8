"""DP-SGD's bound and noise in local steps, as typed, checked choices."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gfl_lightning.checks import require
from gfl_lightning.privacy.mechanisms.mechanism import require_bound


@dataclass(frozen=True)
class StepNoise:
    """g = (1/b) (Σ_s min(1, C/‖g_s‖) g_s + z C ξ) in every local step, on Poisson batches; the default does nothing.

    >>> StepNoise(clip=1.0, noise_multiplier=2.0).is_inert
    False

    Args:
        clip: C, the bound on the gradient of each sample; infinite means plain steps.
        noise_multiplier: z, noise on the sum of bounded gradients in units of ``clip``.
    """

    clip: float = math.inf
    noise_multiplier: float = 0.0

    def __post_init__(self) -> None:
        require_bound(self.clip)
        finite = 0 <= self.noise_multiplier < math.inf
        require(finite, "noise_multiplier", "be finite and at least 0", self.noise_multiplier)
        require(
            self.noise_multiplier == 0 or math.isfinite(self.clip),
            "clip",
            "be finite where noise_multiplier is not 0, as the noise is in its units",
            self.clip,
        )

    @property
    def is_inert(self) -> bool:
        """Whether local steps are plain SGD's."""
        return math.isinf(self.clip)
