"""Where personal terms cannot be exact, or would break what is promised of uploads."""

from __future__ import annotations

import math

from gfl_lightning.checks import InputError
from gfl_lightning.federated.local.options import Estimator
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.personal.personal import Personal
from gfl_lightning.privacy.protection import Protection


def require_personal(personal: Personal, aggregator: Aggregator, estimator: Estimator, protection: Protection) -> None:
    """Refuse personal terms that the rest of a federation cannot carry."""
    if personal.is_inert:
        return
    reasons = {
        "Shared for the exact estimator": estimator == "exact",
        "Shared where local steps are DP-SGD's, as terms fitted to all samples would enter each step": (
            not protection.steps.is_inert
        ),
        "Shared where the unit is a sample and validation losses are told, as each sample would move all of them": (
            protection.unit == "sample" and not protection.validation.is_inert
        ),
    }
    if personal.estimates:
        reasons[
            "given a strength where uploads are protected, as sums of residuals would be uploaded"
        ] = not protection.is_inert
    if math.isfinite(personal.gate_strength):
        reasons |= {
            "without a gate where the aggregator is learnable": aggregator.learnable,
            "without a gate where nobody has neighbours": aggregator.isolates,
            "without a gate where Jacobians carry noise": protection.jacobian.is_noisy,
        }
    for rule, holds in reasons.items():
        if holds:
            raise InputError(f"personal must be {rule}, got {personal!r}.")
