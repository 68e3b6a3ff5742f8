"""A cell of the audit: one federation under one defence, attacked by everybody."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from gfl_lightning.audit.audit import audit
from gfl_lightning.audit.cast import Scale
from gfl_lightning.audit.sights import Everything, FirstServer, Forgetful, SecondServer, Sight
from gfl_lightning.audit.subject import Subject
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.records.as_they_are import AsTheyAre
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.graphs.records.rotated import Rotated
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.privacy.randomise.once import RandomisedOnce
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit
from gfl_lightning.studies.assembly import graph_of, model_of
from gfl_lightning.studies.cell import Cell

SCALE = {"victims": 20, "fellows": 10, "noisy_rounds": 32}
SHADOWS = 8


@dataclass(frozen=True)
class Defence:
    """What a configuration cannot say: what clients do to records first, and what an attacker at the server has.

    Args:
        records: what clients take part with.
        sight: what the server sees.
        shadows: federations that an outsider trains.
    """

    records: Records = AsTheyAre()  # noqa: RUF009  # frozen
    sight: Sight = Everything()  # noqa: RUF009
    shadows: int = 0


def once(epsilon: float) -> RandomisedOnce:
    """Features and labels by halves of ε, in the space of the data, so that records can be compared."""
    return RandomisedOnce(epsilon, features=PrivUnit(), label_share=0.5, share_labels=0.0)


DEFENCES = {
    "plain": Defence(),
    "with shadows": Defence(shadows=SHADOWS),
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
    started = time.perf_counter()
    defence, graph, rounds = DEFENCES[cell.audit], graph_of(cell), cell.experiment.rounds
    model = model_of(cell, graph)
    assert isinstance(model, GFL)
    model.engine_on(graph, rounds)
    model.begin_rounds(0, {})

    def build(data: ClientGraph, seed: int) -> Federation:
        return model.federation_on(data, seed, model.account.in_force)

    delta = model.account.guarantee.delta if model.account.protects else 0.0
    subject = Subject(graph, build, rounds, cell.seed, defence.records, delta=delta)
    scale = Scale(**SCALE, shadows=defence.shadows)
    try:
        found = audit(subject, scale, defence.sight, before_each=model.charge_round)
    except DivergedError:
        return {"accuracy": None, "diverged": True, "findings": [], "seconds": round(time.perf_counter() - started, 4)}
    report = model.privacy
    claimed = math.inf if report is None else report.epsilon
    if isinstance(defence.records, RandomisedOnce):
        claimed = defence.records.epsilon
    return {
        "accuracy": None if math.isnan(found.accuracy) else round(found.accuracy, 6),
        "diverged": False,
        "claimed_epsilon": None if math.isinf(claimed) else float(f"{claimed:.5g}"),
        "findings": [finding.as_dict() for finding in found.findings],
        "seconds": round(time.perf_counter() - started, 4),
    }
