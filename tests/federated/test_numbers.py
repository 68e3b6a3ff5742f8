"""Labels that are numbers: every path, protocol and baseline against loops that use textbook residuals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from graph_builders import random_clients, with_numbers
from oracle import Client, dense_powers, run_round
from torch import Tensor, nn
from torch.nn import functional as F

from gfl_lightning.baselines.central import CentralDescent
from gfl_lightning.baselines.local_mlps import LocalModels
from gfl_lightning.baselines.networks.appnp_net import APPNPNet
from gfl_lightning.engine.evaluation import NumberMetrics
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.huber import Huber
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.theory.staleness import staleness

LOSSES: tuple[Loss, ...] = (SquaredError(), Huber(delta=0.5), Poisson())
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"estimator": "v1"},
    {"aggregator": Identity()},
    {"aggregator": LearnablePolynomial(0.2, 3), "path": "general"},
)


def standardised(graph: ClientGraph) -> Tensor:
    """t of every sample, from the training labels."""
    y = graph.y[graph.mask(Split.TRAIN)]
    if isinstance(graph.loss, Poisson):
        return graph.y / y.mean()
    return (graph.y - y.mean()) / y.var(correction=0).sqrt()


def textbook(graph: ClientGraph) -> Callable[[Tensor, Tensor], Tensor]:
    """The residual of one sample by autograd of torch's own losses."""
    y = graph.y[graph.mask(Split.TRAIN)]
    mean, spread = y.mean(), y.var(correction=0).sqrt()

    def residual(z: Tensor, label: Tensor) -> Tensor:
        z = z.detach().clone().requires_grad_()
        if isinstance(graph.loss, Poisson):
            loss = F.poisson_nll_loss(z, (label / mean)[None])
        elif isinstance(graph.loss, Huber):
            loss = F.huber_loss(z, ((label - mean) / spread)[None], delta=graph.loss.delta)
        else:
            loss = F.mse_loss(z, ((label - mean) / spread)[None]) / 2
        return torch.autograd.grad(loss, z)[0]

    return residual


def rounds(federation: Federation, number: int = 3) -> Weights:
    state = federation.start()
    for _ in range(number):
        state, _ = federation.round(state)
    return state.weights


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_all_paths_agree_with_the_oracle(task: str, loss: Loss, variant: dict[str, Any]) -> None:
    graph = with_numbers(random_clients(task), loss)
    local = LocalTraining(0.1, 3, 2 if task == "sc" else None)
    options = {"aggregator": APPNP(0.2, 4)} | variant
    first = Federation(graph, MLP((5,)), local=local, seed=5, **options)
    gamma = first.aggregator.gamma
    powers = dense_powers(graph, len(gamma) - 1)
    if not first.aggregator.learnable:
        powers = torch.tensordot(gamma, powers, 1)[None]
    clients = [Client(graph, k, first.encoder, textbook(graph)) for k in range(graph.num_clients)]
    W = first.start().weights
    for number in range(3):
        schedule = first.schedule
        who = (schedule.who_shares(number).tolist(), schedule.who_trains(number).tolist())
        batches = schedule.batches_by_client(number)
        W = run_round(clients, powers, W, *who, batches, 0.1, compensated=first.estimator == "compensated")
    for path in ("general",) if "path" in options else ("dual", "primal", "general"):
        found = rounds(Federation(graph, MLP((5,)), local=local, seed=5, **options | {"path": path}))
        torch.testing.assert_close(found, W, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_one_step_a_round_is_centralised_descent_and_exact_is_not_stale(loss: Loss) -> None:
    graph = with_numbers(random_clients("dnc"), loss)
    local = LocalTraining(0.1, 1)
    federation = Federation(graph, MLP((5,)), APPNP(0.2, 4), local=local)
    exact = Federation(graph, MLP((5,)), APPNP(0.2, 4), "exact", local)
    central = CentralDescent(graph, APPNPNet(hidden=5, alpha=0.2, M=4), lr=0.1)
    assert staleness(exact, exact.start()).gradient < 1e-20
    W = federation.start().weights
    state = central.start(dict(zip(central.shapes, W.values(), strict=True)))
    for _ in range(3):
        state, _ = central.round(state)
    for found in (rounds(federation), rounds(exact)):
        for ours, theirs in zip(found.values(), state.weights.values(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def test_metrics_are_errors_in_the_users_units() -> None:
    graph = with_numbers(random_clients("sc"), SquaredError())
    federation = Federation(graph, MLP((5,)), local=LocalTraining(0.1, 3))
    _, report = federation.round(state := federation.start())
    state, report = federation.round(state)
    predicted = graph.loss.link(federation.logits(state))[:, 0]
    test = report.metrics["test"]
    assert isinstance(test, NumberMetrics)
    error = (predicted - graph.y).abs()
    rows = graph.mask(Split.TEST)
    assert test.mae == pytest.approx(float(error[rows].mean()))
    owners = graph.client[rows].unique().tolist()
    alone = [float(error[rows & (graph.client == k)].mean()) for k in owners]
    assert test.client_mae == pytest.approx(sum(alone) / len(alone))
    t = standardised(graph)
    expected = 0.5 * (federation.logits(state)[:, 0] - t)[rows] ** 2
    assert test.loss == pytest.approx(float(expected.mean()))


def test_isolated_models_learn_numbers_too() -> None:
    graph = with_numbers(random_clients("sc"), SquaredError())
    engine = LocalModels(graph, 8, lr=0.1, batch_size=None, seed=2)
    state = engine.start()
    start = state.weights
    for _ in range(5):
        state, report = engine.round(state)
    assert math.isfinite(report.metrics["val"].loss)
    t = standardised(graph)
    for k in (0, 3):
        model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False)).double()
        model.load_state_dict({"0.weight": start["W1"][k], "2.weight": start["W2"][k]})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        mine = (graph.client == k) & graph.mask(Split.TRAIN)
        for _ in range(5):
            optimizer.zero_grad()
            (F.mse_loss(model(graph.x[mine])[:, 0], t[mine]) / 2).backward()
            optimizer.step()
        torch.testing.assert_close(state.weights["W1"][k], model[0].weight.detach(), rtol=1e-9, atol=1e-11)
