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
        audit: the defence under which it is attacked (studies/auditing.py); nothing means that it is only trained.
    """

    experiment: Experiment
    repetition: int
    probes: int = 0
    audit: str = ""

    @property
    def seed(self) -> int:
        """Of the initial weights, batches and noise."""
        return int(self.experiment.model_options.get("seed", self.repetition))

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that determines the result, ready for JSON."""
        audited = {"audit": self.audit} if self.audit else {}
        return self.experiment.content | {"repetition": self.repetition, "probes": self.probes} | audited

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
        audit: the defence under which each is attacked, if it is.
    """

    label: str
    column: str
    experiment: Experiment
    repetitions: int
    probes: int = 0
    audit: str = ""

    @property
    def cells(self) -> list[Cell]:
        """Its trainings."""
        return [Cell(self.experiment, number, self.probes, self.audit) for number in range(self.repetitions)]
