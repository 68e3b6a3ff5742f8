"""A cell becomes a record: train, keep the model with the lowest validation loss over the rounds, test it."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from gfl_lightning.baselines.span import on_span
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import DivergedError, Engine, Predictor
from gfl_lightning.engine.evaluation import Metrics, client_score
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.losses.forward_corrected import ForwardCorrected
from gfl_lightning.lit.central import Central
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.studies.assembly import graph_of, model_of
from gfl_lightning.studies.auditing import run_audit
from gfl_lightning.studies.cell import Cell
from gfl_lightning.studies.probes import NoProbes, probes_of
from gfl_lightning.theory.connectivity import connectivity

CURVE_POINTS = 100
METRICS = ("loss", "accuracy", "client_loss", "client_accuracy")


@dataclass
class Run:
    """The best round of a training, and its losses at every so many rounds."""

    every: int
    best: Best = field(default_factory=Best)
    curves: dict[str, list[float | None]] = field(default_factory=lambda: {"updates": [], "train": [], "val": []})

    def note(self, number: int, updates: int, metrics: dict[str, Metrics]) -> None:
        """Take down the losses after a round, if it is due."""
        if number % self.every == 0:
            for name, value in (("updates", updates), ("train", metrics["train"].loss), ("val", metrics["val"].loss)):
                self.curves[name].append(_short(value))


def run_cell(cell: Cell) -> dict[str, Any]:
    """The record of a cell, ready for JSON: metrics of the best model on the test samples, curves, seconds."""
    if cell.audit:
        return run_audit(cell)
    started = time.perf_counter()
    rounds, whole = cell.experiment.rounds, graph_of(cell)
    model = model_of(cell, whole)
    graph, weights = on_span(whole, model.architecture, cell.seed) if isinstance(model, Central) else (whole, None)
    engine = model.engine_on(graph.without_test(), rounds)
    probes, run = probes_of(engine, rounds, cell.probes), Run(every=max(1, rounds // CURVE_POINTS))
    diverged = False
    try:
        train(engine, weights, rounds, run, probes)
        found = tested(model.predictor_on(graph), run.best) | probes.summary()
    except DivergedError:
        diverged, found = True, dict.fromkeys(METRICS)
    lambda_max = connectivity(whole, whole.training_clients).lambda_max
    return {
        **found,
        "diverged": diverged,
        "best_round": run.best.round,
        "rounds": rounds,
        "val_loss": _short(run.best.val_loss),
        "lambda_max": _short(lambda_max),
        "curves": run.curves,
        "seconds": round(time.perf_counter() - started, 4),
    }


def train(engine: Engine[Any], weights: Weights | None, rounds: int, run: Run, probes: NoProbes) -> None:
    """Rounds of any engine, from given weights or from those of its seed; ``run`` keeps what is worth keeping."""
    state = engine.start(weights)
    for number in range(1, rounds + 1):
        probes.look(state)
        state, report = engine.round(state)
        run.best = engine.choose(run.best, state, report)
        run.note(number, number * engine.updates_per_round, report.metrics)


def tested(predictor: Predictor, best: Best) -> dict[str, Any]:
    """Metrics of the best weights on the test samples; by client too, where one has several of them."""
    graph = predictor.graph
    logits = predictor.logits_of(best.weights, best.round)
    metrics = predictor.evaluator(logits)
    found: dict[str, Any] = {name: _short(value) for name, value in asdict(metrics["test"]).items()}
    if isinstance(graph.loss, ForwardCorrected):
        found["val_accuracy"] = _short(
            graph.loss.of_truth(metrics["val"].accuracy, graph.num_classes)  # type: ignore[attr-defined]
        )
    if int(graph.counts(graph.mask(Split.TEST)).max()) > 1:
        found["per_client"] = [_short(share) for share in client_score(graph, logits).tolist()]
    return found


def _short(value: float) -> float | None:
    """Seven significant digits, all that single precision has; nothing where there is no number."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
