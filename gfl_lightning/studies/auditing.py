"""A cell of the audit: one federation under one defence, attacked by everybody."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

from gfl_lightning.audit.cast import Scale
from gfl_lightning.audit.of_model import audited, builder
from gfl_lightning.audit.recording import record
from gfl_lightning.audit.sights import Everything, FirstServer, Forgetful, SecondServer, Sight
from gfl_lightning.audit.subject import Subject
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.records.as_they_are import AsTheyAre
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.graphs.records.rotated import Rotated
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.privacy.randomise.once import RandomisedOnce
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit
from gfl_lightning.studies.assembly import graph_of, model_of
from gfl_lightning.studies.cell import Cell

SCALE = {"victims": 12, "fellows": 8, "noisy_rounds": 32}
SHADOWS = 6
SEEDS = 3


@dataclass(frozen=True)
class Defence:
    """What a configuration cannot say: what clients do to records first, and what an attacker at the server has.

    Args:
        records: what clients take part with.
        sight: what the server sees.
        shadows: federations that an outsider trains.
        seeds: of weights and noise, over which accuracy is taken.
    """

    records: Records = AsTheyAre()  # noqa: RUF009  # frozen
    sight: Sight = Everything()  # noqa: RUF009
    shadows: int = 0
    seeds: int = SEEDS


def once(epsilon: float) -> RandomisedOnce:
    """Features and labels by halves of ε, in the space of the data, so that records can be compared."""
    return RandomisedOnce(epsilon, features=PrivUnit(), label_share=0.5, share_labels=0.0)


DEFENCES = {
    "plain": Defence(),
    "with shadows": Defence(shadows=SHADOWS),
    "one seed": Defence(seeds=1),
    "first of two servers": Defence(sight=FirstServer()),
    "second of two servers": Defence(sight=SecondServer()),
    "server that forgets": Defence(sight=Forgetful()),
    "rotation": Defence(Rotated()),
    "randomised once, ε = 1": Defence(once(1.0), shadows=SHADOWS),
    "randomised once, ε = 4": Defence(once(4.0), shadows=SHADOWS),
    "randomised once, ε = 8": Defence(once(8.0), shadows=SHADOWS),
}


def run_audit(cell: Cell) -> dict[str, Any]:
    """The record of an audited cell, ready for JSON."""
    started = time.process_time()
    defence, graph, rounds = DEFENCES[cell.audit], graph_of(cell), cell.experiment.rounds
    model = _planned(cell, graph)
    scale = Scale(**SCALE, shadows=defence.shadows)
    try:
        found = audited(model, graph, rounds, scale, defence.records, defence.sight)
    except DivergedError:
        return {"accuracy": None, "diverged": True, "findings": [], "seconds": round(time.process_time() - started, 4)}
    again = [_accuracy(replace(cell, repetition=seed), defence, graph) for seed in range(1, defence.seeds)]
    accuracies = [found.accuracy, *again]
    return {
        "accuracy": None if math.isnan(found.accuracy) else round(found.accuracy, 6),
        "accuracies": [round(one, 6) for one in accuracies if not math.isnan(one)],
        "diverged": False,
        "nominal_epsilon": None if math.isinf(found.nominal_epsilon) else float(f"{found.nominal_epsilon:.5g}"),
        "findings": [finding.as_dict() for finding in found.findings],
        "seconds": round(time.process_time() - started, 4),
    }


def _planned(cell: Cell, graph: ClientGraph) -> GFL:
    """The model of a cell, its protection planned; noise comes from a seed, so that the study can be repeated."""
    model = model_of(cell, graph)
    assert isinstance(model, GFL)
    model.engine_on(graph, cell.experiment.rounds)
    return model


def _accuracy(cell: Cell, defence: Defence, graph: ClientGraph) -> float:
    """Of the same federation on the same data with another seed of weights and noise; nan if it diverges."""
    subject = Subject(graph, builder(_planned(cell, graph)), cell.experiment.rounds, cell.seed, defence.records)
    try:
        federation = subject.build(subject.trained_on(cell.seed), cell.seed)
        return record(federation, subject.rounds, kept=set()).accuracy(graph)
    except DivergedError:
        return math.nan
