"""The ways to learn from clients' data that are compared, from the configuration of one of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.baselines.local_mlps import LocalModels
from gfl_lightning.engine.newcomers import Newcomers
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.federated.afterwards.fine_tuning import fine_tuned
from gfl_lightning.federated.afterwards.mixing import mixed, mixing_weights
from gfl_lightning.federated.afterwards.mixture import Mixed, Mixture
from gfl_lightning.federated.federation import Federation
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.parts import describe
from gfl_lightning.practice.rounds import IsolatedRun, Run
from gfl_lightning.practice.setting import Setting

FACTOR, LEAST_RATE, MOST_RATE = 3.0, 0.1, 10.0
TUNED_STEPS = (10, 100)
NO_NEIGHBOURS: dict[str, Any] = {"aggregator": {"class_path": "Identity"}}
NOTHING_PERSONAL: dict[str, Any] = {"personal": {"class_path": "Shared"}}


@dataclass(frozen=True)
class Method:
    """A way to learn without bringing the data together.

    Args:
        key: its short name.
        title: its name in tables.
        options: of the model that differ from the configuration.
        shuffled: whether clients take each other's places in the graph.
        rate_of: the method whose rate it takes; its own where this is its key.
    """

    key: str
    title: str
    options: dict[str, Any]
    shuffled: bool = False
    rate_of: str = ""

    def graph(self, graph: ClientGraph, seed: int) -> ClientGraph:
        """The clients as this method connects them."""
        return shuffled(graph, seed) if self.shuffled else graph

    def run(self, setting: Setting, graph: ClientGraph, seed: int, rate: float) -> Run:
        """Training on a graph, at ``rate`` times the rate of the configuration."""
        model = self.model(setting, graph, seed)
        lr = model.local.lr * rate
        return Run(self.with_rate(setting, lr).gfl(graph, seed).engine_on(graph, setting.rounds)).advance(
            setting.rounds
        )

    def model(self, setting: Setting, graph: ClientGraph, seed: int) -> GFL:
        """The model with this method's options."""
        return setting.with_options(self.options).gfl(graph, seed)

    def with_rate(self, setting: Setting, lr: float) -> Setting:
        """The setting of this method at a rate."""
        return setting.with_options({**self.options, "local.lr": lr})

    def of_newcomers(self, setting: Setting, found: Newcomers, seed: int, rate: float) -> Tensor | None:
        """What a model that newcomers had no part in predicts of all samples ``[S, c]``."""
        known = self.graph(found.without, seed)
        run = self.run(setting, known, seed, rate)
        whole = self.graph(found.whole, seed)
        lr = self.model(setting, known, seed).local.lr * rate
        predictor = self.with_rate(setting, lr).gfl(whole, seed).predictor_on(whole)
        return whole.loss.link(predictor.logits_of(run.best.weights)).cpu()


@dataclass(frozen=True)
class Isolated(Method):
    """Every client alone, with a model of the configuration's width."""

    def run(self, setting: Setting, graph: ClientGraph, seed: int, rate: float) -> Run:
        """Updates of every client's own model, one a round."""
        model = setting.gfl(graph, seed)
        encoder = model.model.encoder.encoder
        hidden = encoder.hidden[0] if isinstance(encoder, MLP) and encoder.hidden else 16
        engine = LocalModels(graph, hidden, model.local.lr * rate, model.local.batch_size, seed)
        return IsolatedRun(engine, patience=100).advance(max(200, setting.rounds))

    def of_newcomers(self, setting: Setting, found: Newcomers, seed: int, rate: float) -> Tensor | None:
        """A client without labelled rows has no model of its own."""
        return None


def methods(setting: Setting, graph: ClientGraph) -> list[Method]:
    """Those that a configuration calls for, itself first."""
    model = setting.gfl(graph, 0)
    plain = NO_NEIGHBOURS | {"personal": describe(model.personal.ungated)}
    found = [
        Method("graph", "graph federated", {}),
        Method("shuffled", "the same, edges shuffled", {}, shuffled=True, rate_of="graph"),
        Method("fedavg", "FedAvg", plain),
    ]
    if not model.personal.is_inert:
        found += [
            Method("graph_shared", "graph federated, nothing personal", NOTHING_PERSONAL, rate_of="graph"),
            Method("fedavg_shared", "FedAvg, nothing personal", NO_NEIGHBOURS | NOTHING_PERSONAL, rate_of="fedavg"),
        ]
    trains = graph.counts(graph.mask(Split.TRAIN)) > 0
    return [*found, Isolated("isolated", "isolated", {})] if bool(trains.all()) else found


def best_rate(method: Method, setting: Setting, graph: ClientGraph) -> float:
    """The factor of the configuration's rate with the lowest validation loss.

    1, 3 and 1/3 are tried, and then further ones for as long as the best is at an end of what was tried.
    """
    connected = method.graph(graph, 0)
    losses: dict[float, float] = {}
    waiting = [1.0, FACTOR, 1 / FACTOR]
    while waiting:
        rate = waiting.pop(0)
        losses[rate] = method.run(setting, connected, 0, rate).val_loss
        best = min(losses, key=lambda one: losses[one])
        if not waiting and best in (min(losses), max(losses)):
            further = best * FACTOR if best == max(losses) else best / FACTOR
            waiting += [further] if LEAST_RATE < further < MOST_RATE else []
    return best


def mix_of(run: Run, fedavg: Tensor) -> Tensor:
    """What clients predict who weigh the graph's model, what FedAvg predicts, and their own, trained on alone."""
    engine, W = run.engine, run.best.weights
    assert isinstance(engine, Federation)
    base, graph = engine.prediction, engine.graph
    z = base.logits_of(W)
    tuned = fine_tuned(graph, base.model.encoder, W, z, base.slope(W), engine.local.lr, TUNED_STEPS)
    everybody = torch.arange(graph.num_clients)
    models = Mixed(base, Mixture(tuned=tuple(tuned)), base.personal.personal.ungated, everybody).outputs(z, W)
    first, *alone = (graph.loss.link(one.double()).cpu() for one in models)
    predictions = [first, fedavg.double(), *alone]
    return mixed(graph, predictions, mixing_weights(graph, predictions))


def shuffled(graph: ClientGraph, seed: int) -> ClientGraph:
    """The graph with its clients put to each other's places at random: the same shape, edges that mean nothing."""
    draw = generator(seed, Stream.SHARING_CLIENTS, 0, 1)
    place = torch.randperm(graph.num_clients, generator=draw).to(graph.edge_index.device)
    return replace(graph, edge_index=place[graph.edge_index])
