"""What is done to a client's uploads before they leave it: one mechanism for each kind, as typed, checked choices."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from gfl_lightning.checks import require_choice
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism
from gfl_lightning.privacy.mechanisms.steps import StepNoise

Unit = Literal["client", "sample"]


@dataclass(frozen=True)
class Protection:
    """Bounds on what a client contributes, and the noise added to it; the default does nothing.

    >>> Protection(hidden=Gaussian(std=0.5)).is_inert
    False

    Args:
        hidden: on the representation ĥ_j.
        jacobian: on its Jacobian ∇ĥ_j, all weights as one vector.
        update: on the model update W_k − W̄, all weights as one vector (DP-FedAvg).
        steps: on every sample's gradient in local steps (DP-SGD).
        validation: on a client's validation loss, which is bounded to [0, C]; clients tell it to the server only where
            there is noise on it, at every validation event.
        unit: whose contribution to ĥ_j and ∇ĥ_j is bounded: the ``client``'s mean, or each ``sample`` in it.
    """

    hidden: Mechanism = Gaussian()  # noqa: RUF009  # frozen
    jacobian: Mechanism = Gaussian()  # noqa: RUF009
    update: Mechanism = Gaussian()  # noqa: RUF009
    steps: StepNoise = StepNoise()  # noqa: RUF009
    validation: Mechanism = Gaussian()  # noqa: RUF009
    unit: Unit = "client"

    def __post_init__(self) -> None:
        require_choice("unit", self.unit, ("client", "sample"))

    @property
    def touches_models(self) -> bool:
        """Whether anything about the clients' models is protected, so that no vote may depend on data."""
        return not (self.update.is_inert and self.steps.is_inert)

    @property
    def is_inert(self) -> bool:
        """Whether nothing is changed at all."""
        return self.hidden.is_inert and self.jacobian.is_inert and self.validation.is_inert and not self.touches_models

    def in_words(self) -> dict[str, Any]:
        """What is in force, by part: the class of each mechanism and its options."""
        parts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "unit"}
        return {
            name: {"mechanism": type(part).__name__, **{f.name: getattr(part, f.name) for f in fields(part)}}
            for name, part in parts.items()
            if not part.is_inert
        }
