"""What a trainer and its module know of a fit, collected for the report on it."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import Trainer

from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.lit.data import ClientGraphData
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.parts import CLASS
from gfl_lightning.reports.scores import baseline, scores
from gfl_lightning.reports.summary import Fit


def collect(trainer: Trainer, module: RoundModule, data: ClientGraphData, test: Metrics, status: str) -> Fit:
    """The facts of a fit whose best model scored ``test``."""
    graph = module.told(data.graph)
    parts: dict[str, Any] = {"data": data.data_set}
    rows = graph.mask(Split.TEST)
    scored, known = scores(graph, module.prediction(), rows), scores(graph, baseline(graph), rows)
    parts |= {name: part for name, part in module.hparams.items() if isinstance(part, dict) and CLASS in part}
    parts |= module.chosen_parts
    return Fit(
        status=status,
        model=type(module).__name__,
        parts=parts,
        best=module.best,
        test=test,
        rounds=trainer.global_step,
        updates_per_round=module.engine.updates_per_round,
        seconds=module.seconds,
        totals=module.totals,
        privacy=module.privacy,
        seed=module.hparams.get("seed"),
        scores=scored,
        baseline=known,
        mix=module.heeded,
    )
