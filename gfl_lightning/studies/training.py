"""A cell becomes a record: train, keep the model with the lowest validation loss over the rounds, test it."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

from gfl_lightning.baselines.central import CentralSamples, descend, network, on_span, require_finite
from gfl_lightning.baselines.local_mlps import LocalSamples, gradient, initial_models, keep_better
from gfl_lightning.engine.evaluation import Metrics, share_correct
from gfl_lightning.federated.federation import DivergedError, Federation
from gfl_lightning.federated.options import LocalTraining
from gfl_lightning.federated.protection.release_facts import release_facts
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets import synthetic
from gfl_lightning.graphs.datasets.planetoid import planetoid
from gfl_lightning.graphs.datasets.subcora import subcora
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.privacy.ledger import calibrated
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Guarantee
from gfl_lightning.studies.cell import Cell, DataSet, Method
from gfl_lightning.studies.probes import Probes
from gfl_lightning.theory.connectivity import connectivity

CURVE_POINTS = 100
DELTA = 1e-5


@dataclass
class Run:
    """The losses of a training, round by round, and its best round.

    ``best_round`` is the one with the lowest validation loss, and ``kept`` what was kept of it.
    """

    every: int
    best_round: int = 0
    best_loss: float = math.inf
    kept: Any = None
    curves: dict[str, list[float | None]] = field(default_factory=lambda: {"updates": [], "train": [], "val": []})

    def note(self, number: int, updates: int, metrics: dict[str, Metrics]) -> bool:
        """Take down the losses after a round; whether it is the best so far."""
        if number % self.every == 0:
            for name, value in (("updates", updates), ("train", metrics["train"].loss), ("val", metrics["val"].loss)):
                self.curves[name].append(_short(value))
        better = metrics["val"].loss < self.best_loss
        if better:
            self.best_round, self.best_loss = number, metrics["val"].loss
        return better


def run_cell(cell: Cell) -> dict[str, Any]:
    """The record of a cell, ready for JSON: metrics of the best model on the test samples, curves, seconds."""
    started = time.perf_counter()
    graph, method = draw(cell.data, cell.repetition), cell.method
    seed = 0 if method.same_start else cell.repetition
    train = {"gfl": train_federation, "central": train_network, "mlps": train_alone}[method.kind]
    run = Run(every=max(1, method.rounds // CURVE_POINTS))
    diverged = False
    try:
        found = train(graph, method, seed, run)
    except DivergedError:
        diverged, found = True, dict.fromkeys(("loss", "accuracy", "client_loss", "client_accuracy"))
    lambda_max = connectivity(graph, graph.training_clients).lambda_max
    return {
        **found,
        "diverged": diverged,
        "best_round": run.best_round,
        "rounds": method.rounds,
        "val_loss": _short(run.best_loss) if run.best_round else None,
        "lambda_max": _short(lambda_max) if math.isfinite(lambda_max) else None,
        "curves": run.curves,
        "seconds": round(time.perf_counter() - started, 4),
    }


@lru_cache(maxsize=64)
def draw(data: DataSet, repetition: int) -> ClientGraph:
    """The client graph of a repetition."""
    if data.name == "cora":
        return planetoid("Cora")
    if data.name == "subcora":
        return subcora(repetition)
    recipe = {"dnc": synthetic.dnc, "snc": synthetic.snc, "sc": synthetic.sc}[data.name]
    return recipe(**dict(data.options), repetition=repetition)  # type: ignore[operator]  # each takes its own options


def without_test(graph: ClientGraph) -> ClientGraph:
    """The graph as training and model selection need it: no test labels, and no test samples that are not shared."""
    test = graph.mask(Split.TEST)
    keep = graph.shared | ~test
    split = torch.where(test, int(Split.NONE), graph.split)
    columns = {name: getattr(graph, name)[keep] for name in ("x", "y", "client", "shared")}
    return replace(graph, **columns, split=split[keep])


def train_federation(graph: ClientGraph, method: Method, seed: int, run: Run) -> dict[str, Any]:
    """Rounds of a federation; W̄ of the best one is tested."""
    federation = _federation(without_test(graph), method, seed)
    probes = Probes(federation, method.rounds, method.probes)
    state = federation.start()
    for number in range(1, method.rounds + 1):
        probes.look(state)
        state, report = federation.round(state)
        if run.note(number, number * method.steps, report.metrics):
            run.kept = state.weights
    tested = _federation(graph, method, seed)
    logits = tested.logits_of(run.kept, run.best_round)
    found = _tested(tested.metrics_of(run.kept, run.best_round)["test"])
    if int(graph.counts(graph.mask(Split.TEST)).max()) > 1:
        found["per_client"] = [_short(share) for share in share_correct(graph, logits).tolist()]
    return found | ({"measured": probes.summary()} if method.probes else {})


def train_network(graph: ClientGraph, method: Method, seed: int, run: Run) -> dict[str, Any]:
    """Updates of a centralised network, whose passes predict all samples anyway."""
    net = network(method.architecture, graph.num_features, graph.num_classes, seed=seed)
    samples = on_span(net, CentralSamples.of(graph, net))
    _, slope = samples.look(net)
    for number in range(1, method.updates + 1):
        descend(net, slope, method.lr)
        logits, slope = samples.look(net)
        metrics = samples.evaluator(logits)
        require_finite(metrics, method.lr)
        if run.note(number, number, metrics):
            run.kept = metrics["test"]
    return _tested(run.kept)


def train_alone(graph: ClientGraph, method: Method, seed: int, run: Run) -> dict[str, Any]:
    """Every client trains a model of its own and keeps its own best one."""
    view = LocalSamples.of(without_test(graph))
    weights = initial_models(Encoder(graph.num_features, graph.num_classes), graph.num_clients, seed)
    best: Weights = {}
    lowest = torch.full((graph.num_clients,), math.inf)
    for number in range(1, method.updates + 1):
        rows, share = view.batch(method.batch_size, number - 1, seed)
        slope = gradient(weights, view.graph.x[rows], view.graph.y[rows], share)
        weights = {name: W - method.lr * slope[name] for name, W in weights.items()}
        logits = view.logits(weights)
        metrics = view.evaluator(logits)
        require_finite(metrics, method.lr)
        run.note(number, number, metrics)
        own = view.validation_loss(logits)
        better = (own < lowest) | view.unvalidated
        lowest, best = torch.where(better, own, lowest), keep_better(best, weights, better)
    whole = LocalSamples.of(graph)
    logits = whole.logits(best)
    shares = [_short(share) for share in share_correct(graph, logits).tolist()]
    return _tested(whole.evaluator(logits)["test"]) | {"per_client": shares}


def _federation(graph: ClientGraph, method: Method, seed: int) -> Federation:
    """The federation of a method; with an ε its noise is the least that keeps all rounds within it."""

    def make(protection: Protection) -> Federation:
        return Federation(
            graph,
            aggregator=Identity() if method.aggregator == "identity" else APPNP(),
            estimator=method.estimator,
            local=LocalTraining(method.lr, method.steps, method.batch_size),
            protection=protection,
            seed=seed,
        )

    if not method.epsilon:
        return make(Protection(hidden_std=method.hidden_std, jacobian_std=method.jacobian_std))
    clips = {name: getattr(method, name) for name in ("hidden_clip", "jacobian_clip", "update_clip")}
    bounded = make(Protection(**{name: clip for name, clip in clips.items() if clip}))
    facts, attendance = release_facts(bounded), bounded.schedule.attendance(range(method.rounds))
    guarantee = Guarantee(delta=DELTA, max_epsilon=method.epsilon, calibrate=True)
    return make(calibrated(bounded.protection, guarantee, facts, *attendance, method.rounds))


def _tested(metrics: Metrics) -> dict[str, Any]:
    return {name: _short(value) for name, value in asdict(metrics).items()}


def _short(value: float) -> float | None:
    """Seven significant digits, all that single precision has; nothing where there is no number."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
