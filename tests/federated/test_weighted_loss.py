"""Weights of samples' losses: every path against the loop oracle, metrics against torch, and limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from graph_builders import random_clients
from oracle import Client, dense_powers, run_round
from torch.nn import functional as F

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining, Path
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.theory.gradient import gradient

PATHS: list[Path] = ["dual", "primal", "general"]


def weighted(task: str) -> ClientGraph:
    graph = random_clients(task)
    draw = torch.Generator().manual_seed(3)
    return replace(graph, weight=0.2 + 2 * torch.rand(graph.num_samples, generator=draw, dtype=torch.float64))


def federation(
    graph: ClientGraph, path: Path, lr: float = 0.3, batch_size: int | None = None, **more: Any
) -> Federation:
    local = LocalTraining(lr, 3, batch_size)
    return Federation(graph, MLP((5,)), APPNP(0.2, 4), local=local, path=path, seed=5, **more)


def after(made: Federation, rounds: int = 2) -> Weights:
    state = made.start()
    for _ in range(rounds):
        state, _ = made.round(state)
    return state.weights


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("task", "batch_size"), [("dnc", None), ("snc", None), ("sc", 2)])
def test_every_path_weighs_losses_as_the_oracle_does(task: str, batch_size: int | None, path: Path) -> None:
    made = federation(weighted(task), path, batch_size=batch_size)
    graph = made.graph
    clients = [Client(graph, k, made.encoder) for k in range(graph.num_clients)]
    A = torch.tensordot(made.aggregator.gamma.double(), dense_powers(graph, 4), 1)[None]
    W = made.start().weights
    everyone = list(range(graph.num_clients))
    for t in range(2):
        W = run_round(
            clients, A, W, everyone, made.schedule.who_trains(t).tolist(), made.schedule.batches_by_client(t), 0.3
        )
    for name, weight in after(made).items():
        torch.testing.assert_close(weight, W[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_equal_weights_are_a_change_of_the_rate(task: str, path: Path) -> None:
    graph = random_clients(task)
    twice = replace(graph, weight=torch.full((graph.num_samples,), 2.0, dtype=torch.float64))
    found, expected = after(federation(twice, path, 0.1)), after(federation(graph, path, 0.2))
    for name in found:
        torch.testing.assert_close(found[name], expected[name])


def test_reported_losses_are_weighted_and_accuracies_are_not() -> None:
    graph = weighted("sc")
    made = federation(graph, "auto")
    weights = made.start().weights
    logits = made.logits_of(weights)
    rows = graph.mask(Split.VAL)
    loss = (graph.weight[rows] * F.cross_entropy(logits[rows], graph.y[rows], reduction="none")).mean()
    found, plain = (
        made.metrics_of(weights)["val"],
        federation(replace(graph, weight=torch.ones(())), "auto").metrics_of(weights),
    )
    assert found.loss == pytest.approx(float(loss))
    assert found.accuracy == plain["val"].accuracy
    assert found.client_accuracy == plain["val"].client_accuracy
    assert found.loss != pytest.approx(plain["val"].loss)


def test_one_full_step_is_along_the_gradient_of_the_weighted_objective() -> None:
    graph = weighted("dnc")
    made = Federation(graph, MLP((5,)), APPNP(0.2, 4), local=LocalTraining(0.3, 1), seed=5)
    start = made.start().weights
    slope, state = gradient(made, start), made.round(made.start())[0]
    for name, weight in state.weights.items():
        torch.testing.assert_close(weight, start[name] - 0.3 * slope[name])
