"""The theory's quantities along a run: ‖∇F(W̄)‖² at every round, σ_H², κ² and σ_G² at a few of them."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.state import FederationState
from gfl_lightning.theory.gradient import gradient_norm_squared
from gfl_lightning.theory.heterogeneity import batch_variance, client_gradients, kappa_squared, sample_gradients
from gfl_lightning.theory.staleness import staleness

CURVE_POINTS = 50


class Probes:
    """Looks at the state that each round starts from.

    Staleness is the mean over the first, the last and three gradients between them of a round.

    Args:
        federation: the federation.
        rounds: how many rounds it will make.
        probes: at how many of them, evenly spread, to measure everything; 0 measures nothing.
    """

    def __init__(self, federation: Federation, rounds: int, probes: int) -> None:
        self.federation, self.rounds, self.probes = federation, rounds, probes
        self._due = {rounds * i // probes for i in range(probes)}
        last = federation.local.steps - 1
        self._places = sorted({last * quarter // 4 for quarter in range(5)})
        self._norms: list[float] = []
        self._measured: list[dict[str, float]] = []

    def look(self, state: FederationState) -> None:
        """Measure, if this run is to be measured."""
        if not self.probes:
            return
        self._norms.append(gradient_norm_squared(self.federation, state.weights))
        if state.round in self._due:
            gradients, owner = sample_gradients(self.federation, state.weights)
            stale = [staleness(self.federation, state, steps=steps) for steps in self._places]
            self._measured.append(
                {
                    "sigma_H_squared": fmean(one.gradient for one in stale),
                    "representation_error": fmean(one.representation for one in stale),
                    "sigma_G_squared": batch_variance(gradients, owner, self.federation.local.batch_size),
                    "kappa_squared": kappa_squared(self.federation, client_gradients(gradients, owner)),
                }
            )

    def summary(self) -> dict[str, Any]:
        """Means over the rounds that were looked at, and the running mean of ‖∇F(W̄)‖² against T."""
        running = [fmean(self._norms[: end + 1]) for end in self._ends()]
        means = {name: fmean(one[name] for one in self._measured) for name in self._measured[0]}
        steps = self.federation.local.steps
        return {
            "grad_norm_squared": fmean(self._norms),
            **means,
            "running": {"updates": [(end + 1) * steps for end in self._ends()], "grad_norm_squared": running},
        }

    def _ends(self) -> list[int]:
        every = max(1, len(self._norms) // CURVE_POINTS)
        return list(range(every - 1, len(self._norms), every))
