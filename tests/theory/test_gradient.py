"""∇F against a dense computation, finite differences, and the round that is a gradient step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graph_builders import random_clients
from oracle import dense_powers
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.theory.gradient import gradient, gradient_norm_squared, objective

VARIANTS: dict[str, dict[str, Any]] = {
    "papers": {},
    "sgc": {"aggregator": SGC(3)},
    "identity": {"aggregator": Identity()},
    "learnable": {"aggregator": LearnablePolynomial(0.2, 3)},
    "deep": {"encoder": MLP((5, 4), "tanh", True)},
}
TASKS = ("dnc", "snc", "sc")


def build(task: str, **options: Any) -> Federation:
    defaults = {"encoder": MLP((5,)), "aggregator": APPNP(0.2, 4), "seed": 3}
    return Federation(random_clients(task), **{**defaults, **options})


def dense_loss(federation: Federation, W: Weights) -> Tensor:
    """F(W) client by client, from dense powers of P and the definition."""
    graph = federation.graph
    powers = dense_powers(graph, len(federation.aggregator.gamma) - 1)
    A = torch.tensordot(W.get("gamma", federation.aggregator.gamma), powers, 1)
    h = federation.encoder(W, graph.x)
    mean_h = torch.stack([h[(graph.client == j) & graph.shared].mean(0) for j in range(graph.num_clients)])
    losses = []
    for k in graph.training_clients.tolist():
        rows = (graph.client == k) & (graph.split == 0)
        others = sum(A[k, j] * mean_h[j] for j in range(graph.num_clients) if j != k)
        losses.append(F.cross_entropy(A[k, k] * h[rows] + others, graph.y[rows]))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("task", TASKS)
def test_matches_a_dense_computation(task: str, variant: str) -> None:
    federation = build(task, **VARIANTS[variant])
    weights = federation.start().weights
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    expected = torch.autograd.grad(dense_loss(federation, leaves), list(leaves.values()))
    found = gradient(federation, weights)
    for (name, g), dense in zip(found.items(), expected, strict=True):
        torch.testing.assert_close(g, dense, rtol=1e-10, atol=1e-13, msg=name)
    norm = sum(float(dense.square().sum()) for dense in expected)
    assert gradient_norm_squared(federation, weights) == pytest.approx(norm, rel=1e-10)
    assert not any(weight.requires_grad for weight in weights.values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_matches_finite_differences(variant: str) -> None:
    federation = build("sc", **VARIANTS[variant])
    weights = federation.start().weights
    draw = torch.Generator().manual_seed(0)
    direction = {n: torch.randn(w.shape, generator=draw, dtype=w.dtype) for n, w in weights.items()}
    step = 1e-6

    def loss(t: float) -> float:
        moved = {name: weight + t * direction[name] for name, weight in weights.items()}
        return float(objective(federation.graph, federation.logits_of(moved)))

    slope = sum(float((g * direction[name]).sum()) for name, g in gradient(federation, weights).items())
    assert slope == pytest.approx((loss(step) - loss(-step)) / (2 * step), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_a_round_of_one_full_update_is_a_gradient_step(task: str, variant: str) -> None:
    """W̄ − η ∇F(W̄) where each client's ĥ is the mean over the very samples it trains on, so that none is stale."""
    federation = build(task, local=LocalTraining(0.3, 1), **VARIANTS[variant])
    state = federation.start()
    after, _ = federation.round(state)
    for name, g in gradient(federation, state.weights).items():
        torch.testing.assert_close(after.weights[name], state.weights[name] - 0.3 * g, rtol=1e-10, atol=1e-13)


def test_works_where_gradients_are_switched_off_and_in_single_precision() -> None:
    double = build("sc")
    single = Federation(random_clients("sc", dtype=torch.float32), MLP((5,)), APPNP(0.2, 4))
    weights = double.start().weights
    with torch.no_grad():
        found = gradient_norm_squared(single, {name: weight.float() for name, weight in weights.items()})
    assert found == pytest.approx(gradient_norm_squared(double, weights), rel=1e-4)


def test_sparse_features_are_differentiated_too() -> None:
    graph = random_clients("dnc", d=60)
    mask = torch.rand(graph.x.shape, generator=torch.Generator().manual_seed(1)) < 0.05
    object.__setattr__(graph, "x", torch.where(mask, graph.x, 0))
    federation = Federation(graph, MLP((5,)), APPNP(0.2, 4))
    weights = federation.start().weights
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    expected = torch.autograd.grad(dense_loss(federation, leaves), list(leaves.values()))
    for g, dense in zip(gradient(federation, weights).values(), expected, strict=True):
        torch.testing.assert_close(g, dense, rtol=1e-10, atol=1e-13)
