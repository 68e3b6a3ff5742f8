"""The theory's quantities along a run: ‖∇F(W̄)‖² at every round, σ_H², κ² and σ_G² at a few of them."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from gfl_lightning.checks import require
from gfl_lightning.engine.engine import Engine, EngineState
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.state import FederationState
from gfl_lightning.theory.gradient import gradient_norm_squared
from gfl_lightning.theory.heterogeneity import batch_variance, client_gradients, kappa_squared, sample_gradients
from gfl_lightning.theory.staleness import staleness

CURVE_POINTS = 50


class NoProbes:
    """Looks at nothing.

    >>> NoProbes().summary()
    {}
    """

    def look(self, state: EngineState) -> None:
        """Called with the state that each round starts from."""

    def summary(self) -> dict[str, Any]:
        """What a record gets of it."""
        return {}


class Probes(NoProbes):
    """Measures the states that the rounds of a federation start from.

    Staleness is the mean over the first, the last and three gradients between them of a round.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> federation = Federation(DNC(num_clients=60, num_features=10).graph)
    >>> probes = Probes(federation, rounds=1, probes=1)
    >>> probes.look(federation.start())
    >>> probes.summary()["measured"]["sigma_G_squared"]
    0.0

    Args:
        federation: the federation.
        rounds: how many rounds it will make.
        probes: at how many of them, evenly spread, to measure everything.
    """

    def __init__(self, federation: Federation, rounds: int, probes: int) -> None:
        self.federation = federation
        self._due = {rounds * i // probes for i in range(probes)}
        last = federation.local.steps - 1
        self._places = sorted({last * quarter // 4 for quarter in range(5)})
        self._norms: list[float] = []
        self._measured: list[dict[str, float]] = []

    def look(self, state: EngineState) -> None:
        """Measure ‖∇F(W̄)‖², and everything if the round is due."""
        assert isinstance(state, FederationState)
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
        measured = {
            "grad_norm_squared": fmean(self._norms),
            **means,
            "running": {"updates": [(end + 1) * steps for end in self._ends()], "grad_norm_squared": running},
        }
        return {"measured": measured}

    def _ends(self) -> list[int]:
        every = max(1, len(self._norms) // CURVE_POINTS)
        return list(range(every - 1, len(self._norms), every))


def probes_of(engine: Engine[Any], rounds: int, probes: int) -> NoProbes:
    """The probes of a run; none are asked for where ``probes`` is 0."""
    if probes == 0:
        return NoProbes()
    require(isinstance(engine, Federation), "probes", "be 0 where the model is not a federation", probes)
    assert isinstance(engine, Federation)
    return Probes(engine, rounds, probes)
