"""Staleness against explicit Jacobians from dense powers, and its closed-form limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from graph_builders import random_clients
from oracle import dense_powers
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.client_models import client_models
from gfl_lightning.federated.local.options import Estimator, LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.state import FederationState
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.theory.staleness import staleness


def build(task: str, steps: int = 3, **options: Any) -> Federation:
    local = LocalTraining(0.3, steps, None if task == "dnc" else 2)
    graph = random_clients(task)
    weight = options.pop("weight", None)
    return Federation(
        graph if weight is None else replace(graph, weight=weight),
        MLP((5,)),
        **{"aggregator": APPNP(0.2, 4), "local": local, "seed": 5, **options},
    )


def slow_definition(federation: Federation, state: FederationState) -> tuple[float, float]:
    """Client by client: C_k and ∇C_k from dense rows of Ã and full Jacobians, the exact gradient by autograd."""
    graph, encoder = federation.graph, federation.encoder
    A = torch.tensordot(federation.aggregator.gamma, dense_powers(graph, len(federation.aggregator.gamma) - 1), 1)
    models = client_models(federation, state)
    names = list(state.weights)

    def C(k: int, *weights: Tensor) -> Tensor:
        W: Weights = dict(zip(names, weights, strict=True))
        total = torch.zeros(3, dtype=torch.float64)
        for j in range(graph.num_clients):
            if j != k:
                total = total + A[k, j] * encoder(W, graph.x[(graph.client == j) & graph.shared]).mean(0)
        return total

    representation, gradient = 0.0, 0.0
    for place, k in enumerate(models.clients.tolist()):
        W = {name: stacked[place] for name, stacked in models.weights.items()}
        x = graph.x[(graph.client == k) & graph.mask(Split.TRAIN)]
        y = graph.y[(graph.client == k) & graph.mask(Split.TRAIN)]
        weight = graph.weight[(graph.client == k) & graph.mask(Split.TRAIN)]
        then = C(k, *state.weights.values())
        representation += float((then - C(k, *W.values())).square().sum())
        J_C = torch.autograd.functional.jacobian(lambda *w, k=k: C(k, *w), tuple(state.weights.values()))
        J_h = torch.autograd.functional.jacobian(
            lambda *w, x=x: encoder(dict(zip(names, w, strict=True)), x), tuple(W.values())
        )
        r = weight[:, None] * (torch.softmax(A[k, k] * encoder(W, x) + then, 1) - F.one_hot(y, 3)) / len(x)
        leaves = {name: w.clone().requires_grad_() for name, w in W.items()}
        logits = A[k, k] * encoder(leaves, x) + C(k, *leaves.values())
        loss = (weight * F.cross_entropy(logits, y, reduction="none")).mean()
        exact = torch.autograd.grad(loss, list(leaves.values()))
        for own, other, true in zip(J_h, J_C, exact, strict=True):
            g = A[k, k] * torch.tensordot(r, own, 2)
            if federation.estimator == "compensated":
                g = g + torch.tensordot(r.sum(0), other, 1)
            gradient += 0.0 if federation.estimator == "exact" else float((g - true).square().sum())
    return representation / len(models.clients), gradient / len(models.clients)


@pytest.mark.parametrize("estimator", ["compensated", "v1", "exact"])
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_matches_the_slow_definition(task: str, estimator: str) -> None:
    federation = build(task, estimator=estimator)
    state = federation.round(federation.start())[0]
    representation, gradient = slow_definition(federation, state)
    found = staleness(federation, state)
    assert found.representation == pytest.approx(representation, rel=1e-9)
    assert found.gradient == pytest.approx(gradient, rel=1e-9)


def random_weights(task: str) -> Tensor:
    draw = torch.Generator().manual_seed(2)
    return 0.1 + 3 * torch.rand(random_clients(task).num_samples, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("estimator", ["compensated", "v1"])
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_weights_of_losses_enter_as_by_the_slow_definition(task: str, estimator: str) -> None:
    federation = build(task, estimator=estimator, weight=random_weights(task))
    state = federation.round(federation.start())[0]
    representation, gradient = slow_definition(federation, state)
    found = staleness(federation, state)
    assert found.representation == pytest.approx(representation, rel=1e-9)
    assert found.gradient == pytest.approx(gradient, rel=1e-9)


@pytest.mark.parametrize("estimator", ["compensated", "v1"])
def test_twice_the_weight_at_half_the_rate_is_four_times_as_stale(estimator: str) -> None:
    """Every client walks to the same W_k, where all gradients are twice as long."""
    plain = build("sc", estimator=estimator)
    twice = build("sc", estimator=estimator, weight=torch.full_like(plain.graph.x[:, 0], 2.0))
    once, double = staleness(plain, plain.start(), 0.3), staleness(twice, twice.start(), 0.15)
    assert double.representation == pytest.approx(once.representation, rel=1e-9)
    assert double.gradient == pytest.approx(4 * once.gradient, rel=1e-9)


@pytest.mark.parametrize("estimator", ["compensated", "v1"])
def test_a_sample_whose_weight_vanishes_has_no_loss(estimator: Estimator) -> None:
    """A graph holds positive weights only; one of 1e-200 is 0 to all digits. The label then does not matter at all."""
    graph = random_clients("sc")
    s = int(graph.mask(Split.TRAIN).nonzero()[-1])
    other = graph.y.clone()
    other[s] = (other[s] + 1) % 3
    found = {}
    for light in (1e-200, 1.0):
        weight = torch.ones_like(graph.x[:, 0])
        weight[s] = light
        made = [
            Federation(replace(graph, y=y, weight=weight), MLP((5,)), APPNP(0.2, 4), estimator, LocalTraining(0.3, 3))
            for y in (graph.y, other)
        ]
        found[light] = [staleness(federation, federation.start()).gradient for federation in made]
    assert found[1e-200][0] == pytest.approx(found[1e-200][1], rel=1e-12)
    assert found[1.0][0] != pytest.approx(found[1.0][1], rel=1e-3)


def test_nothing_is_stale_without_neighbours() -> None:
    federation = build("sc", aggregator=Identity())
    found = staleness(federation, federation.start())
    assert found.representation == pytest.approx(0, abs=1e-25)
    assert found.gradient == pytest.approx(0, abs=1e-25)


def test_compensation_errs_to_second_order_and_v1_does_not() -> None:
    """With η → 0 the compensated gradient is exact; what V1 drops, ∇C_kᵀ r, stays."""
    found = {}
    for estimator in ("compensated", "v1"):
        federation = build("dnc", estimator=estimator)
        found[estimator] = [staleness(federation, federation.start(), lr).gradient for lr in (1e-3, 1e-5)]
    assert found["compensated"][0] < 1e-4 * found["v1"][0]
    assert found["compensated"][1] == pytest.approx(1e-4 * found["compensated"][0], rel=0.05)
    assert found["v1"][1] == pytest.approx(found["v1"][0], rel=0.05)


def test_nothing_is_stale_before_the_first_step_and_all_steps_are_the_default() -> None:
    federation = build("dnc")
    state = federation.start()
    start = staleness(federation, state, steps=0)
    assert (start.representation, start.gradient) == (pytest.approx(0, abs=1e-25), pytest.approx(0, abs=1e-25))
    assert staleness(federation, state, steps=3) == staleness(federation, state)
    assert staleness(federation, state, steps=1).representation < staleness(federation, state).representation


def test_partial_sharing_is_refused() -> None:
    federation = build("dnc", participation=Participation(share=0.5))
    with pytest.raises(InputError, match="federation must share all representations, unprotected"):
        staleness(federation, federation.start())
