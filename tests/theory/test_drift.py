"""Client models and their drift against the loop oracle, the round's own average and closed forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from graph_builders import nodes, random_clients
from oracle import Client, dense_powers, run_round

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.client_models import client_models
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.local.problem import weighted_sum
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.server.momentum import Momentum
from gfl_lightning.federated.state import FederationState
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.theory.drift import client_drift, dispersion
from gfl_lightning.theory.gradient import gradient

VARIANTS: dict[str, dict[str, Any]] = {
    "dual": {"path": "dual"},
    "primal": {"path": "primal"},
    "general": {"path": "general"},
    "v1": {"estimator": "v1"},
    "partial": {"participation": Participation(train=0.5), "weighting": "samples"},
    "learnable": {"aggregator": LearnablePolynomial(0.2, 3)},
}


def build(task: str, steps: int = 4, **options: Any) -> Federation:
    local = LocalTraining(0.3, steps, None if task == "dnc" else 2)
    return Federation(
        random_clients(task), MLP((5,)), **{"aggregator": APPNP(0.2, 4), "local": local, "seed": 5, **options}
    )


def oracle_models(federation: Federation, state: FederationState, lr: float) -> list[Weights]:
    """Each client's model: the oracle's round in which it alone trains."""
    graph, aggregator = federation.graph, federation.aggregator
    clients = [Client(graph, k, federation.encoder) for k in range(graph.num_clients)]
    powers = dense_powers(graph, len(aggregator.gamma) - 1)
    if not aggregator.learnable:
        powers = torch.tensordot(aggregator.gamma.to(powers), powers, 1)[None]
    compensated = federation.estimator == "compensated"
    return [
        run_round(
            clients,
            powers,
            state.weights,
            list(range(graph.num_clients)),
            [k],
            federation.schedule.batches_by_client(state.round),
            lr,
            compensated,
        )
        for k in federation.schedule.who_trains(state.round).tolist()
    ]


def after_one_round(federation: Federation) -> FederationState:
    return federation.round(federation.start())[0]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_drift_is_that_of_the_oracles_clients(task: str, variant: str) -> None:
    federation = build(task, **VARIANTS[variant])
    state = after_one_round(federation)
    expected = oracle_models(federation, state, lr=0.2)
    models = client_models(federation, state, lr=0.2)
    assert torch.equal(models.clients, federation.schedule.who_trains(state.round))
    for name, stacked in models.weights.items():
        torch.testing.assert_close(stacked, torch.stack([one[name] for one in expected]), rtol=1e-9, atol=1e-12)
    vote = models.vote.tolist()
    drift = 0.0
    for name in state.weights:
        average = sum(v * one[name] for v, one in zip(vote, expected, strict=True))
        drift += sum(float((one[name] - average).square().sum()) for one in expected) / len(expected)
    assert client_drift(federation, state, lr=0.2) == pytest.approx(drift, rel=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_models_average_to_the_next_round(task: str, variant: str) -> None:
    federation = build(task, **VARIANTS[variant])
    state = after_one_round(federation)
    models, after = client_models(federation, state), federation.round(state)[0]
    for name, stacked in models.weights.items():
        torch.testing.assert_close(weighted_sum(models.vote, stacked), after.weights[name], rtol=1e-10, atol=1e-13)


def test_server_optimizer_does_not_enter() -> None:
    drift = [
        client_drift(federation, federation.start()) for federation in (build("sc"), build("sc", server=Momentum(0.1)))
    ]
    assert drift[0] == drift[1] > 0


def test_a_lone_training_client_does_not_drift() -> None:
    federation = build("sc", participation=Participation(train=1))
    assert client_drift(federation, federation.start()) == pytest.approx(0, abs=1e-25)


def test_one_update_drifts_by_the_spread_of_the_gradients() -> None:
    """I = 1, no graph: W_k − W̃ = −η (∇F_k − ∇F), so that the drift is η² times the variance of ∇F_k over clients."""
    graph = nodes(4, []).to(torch.float64)
    federation = Federation(graph, MLP((3,)), local=LocalTraining(0.05, 1))
    state = federation.start()
    whole = gradient(federation, state.weights)
    models = client_models(federation, state)
    spread = 0.0
    for name, stacked in models.weights.items():
        slopes = (state.weights[name] - stacked) / 0.05
        torch.testing.assert_close(slopes.mean(0), whole[name], rtol=1e-9, atol=1e-12)
        spread += float((slopes - whole[name]).square().flatten(1).sum(1).mean())
    assert client_drift(federation, state) == pytest.approx(0.05**2 * spread, rel=1e-9)


@pytest.mark.parametrize("path", ["dual", "primal", "general"])
def test_clients_whose_update_is_not_finite_are_left_out(path: str) -> None:
    graph = replace(nodes(6, []), x=torch.randn(6, 2, generator=torch.Generator().manual_seed(0)))
    graph.x[5] = 1e15
    federation = Federation(graph, MLP((64,)), local=LocalTraining(0.3, 5), path=path)  # type: ignore[arg-type]
    state = federation.start()
    models = client_models(federation, state)
    assert models.clients.tolist() == [0, 1, 2, 3, 4]
    assert float(models.vote.sum()) == pytest.approx(1)
    assert 0 < client_drift(federation, state) < float("inf")
    after, report = federation.round(state)
    assert report.skipped == 1
    for name, stacked in models.weights.items():
        torch.testing.assert_close(stacked.mean(0), after.weights[name])


def test_dispersion_in_closed_form() -> None:
    weights = {"a": torch.tensor([[0.0], [2.0]]), "b": torch.tensor([[[1.0, 1.0]], [[1.0, 5.0]]])}
    assert dispersion(weights, torch.tensor([0.5, 0.5])) == 1 + 4
    assert dispersion(weights, torch.tensor([1.0, 0.0])) == (4 + 16) / 2
