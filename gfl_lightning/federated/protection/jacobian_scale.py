"""What a bound on ∇ĥ_j multiplies the Jacobian of each shared sample by."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gfl_lightning.federated.protection.clipping import scaled_rows


class Unscaled:
    """No bound: everything stays as it is."""

    def rows(self, values: Tensor) -> Tensor:
        """Factors of the Jacobians of q samples ``[q, m]``, scaled."""
        return values

    def columns(self, mixing: Tensor, part: Tensor) -> Tensor:
        """Coefficients ``[..., p]`` of the Jacobians of the samples at some places ``[p]``, scaled."""
        return mixing


@dataclass(frozen=True, eq=False)
class JacobianScale(Unscaled):
    """min(1, C/‖∇ĥ‖) for each of q samples ``[q]``."""

    value: Tensor

    def rows(self, values: Tensor) -> Tensor:
        """Factors of the Jacobians of q samples ``[q, m]``, scaled."""
        return scaled_rows(values, self.value)

    def columns(self, mixing: Tensor, part: Tensor) -> Tensor:
        """Coefficients ``[..., p]`` of the Jacobians of the samples at some places ``[p]``, scaled."""
        return mixing * self.value[part]
