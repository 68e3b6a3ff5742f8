"""The unit of all studies: one training of one experiment on one draw of its data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from gfl_lightning.studies.experiment import Experiment


@dataclass(frozen=True)
class Cell:
    """One training; repetition r takes draw r of the data and, unless the experiment states a seed, seed r.

    >>> Cell(Experiment.read("paper/dnc_synthetic"), repetition=3).seed
    3

    Args:
        experiment: model, data and rounds.
        repetition: r.
        probes: at how many rounds the theory's quantities are measured; ‖∇F(W̄)‖² is then measured at every round.
    """

    experiment: Experiment
    repetition: int
    probes: int = 0

    @property
    def seed(self) -> int:
        """Of the initial weights, batches and noise."""
        return int(self.experiment.model_options.get("seed", self.repetition))

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that determines the result, ready for JSON."""
        return self.experiment.content | {"repetition": self.repetition, "probes": self.probes}

    @property
    def key(self) -> str:
        """A digest of the parameters."""
        return hashlib.sha256(json.dumps(self.parameters, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Row:
    """An entry of a table or a point of a figure: an experiment over repetitions.

    >>> row = Row("GFL-APPNP I=10", "Synthetic DNC", Experiment.read("paper/dnc_synthetic"), repetitions=20)
    >>> len(row.cells)
    20

    Args:
        label: the method as the tables call it.
        column: the data set as the tables call it.
        experiment: model, data and rounds.
        repetitions: how many.
        probes: of each training.
    """

    label: str
    column: str
    experiment: Experiment
    repetitions: int
    probes: int = 0

    @property
    def cells(self) -> list[Cell]:
        """Its trainings."""
        return [Cell(self.experiment, repetition, self.probes) for repetition in range(self.repetitions)]
