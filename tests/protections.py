"""Protections by their numbers alone, for tests that vary one of many."""

from __future__ import annotations

import math

from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.protection import Protection, Unit


def protection(
    hidden_std: float = 0.0,
    hidden_clip: float = math.inf,
    jacobian_std: float = 0.0,
    jacobian_clip: float = math.inf,
    update_std: float = 0.0,
    update_clip: float = math.inf,
    step_clip: float = math.inf,
    noise_multiplier: float = 0.0,
    unit: Unit = "client",
) -> Protection:
    """Gaussian noise and bounds on ĥ_j, ∇ĥ_j, W_k − W̄ and local steps; the default does nothing."""
    return Protection(
        hidden=Gaussian(hidden_std, hidden_clip),
        jacobian=Gaussian(jacobian_std, jacobian_clip),
        update=Gaussian(update_std, update_clip),
        steps=StepNoise(step_clip, noise_multiplier),
        unit=unit,
    )
