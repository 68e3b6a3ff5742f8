"""κ² and σ_G² against loops over clients and over all batches, and the inequality that makes κ² useful."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from graph_builders import random_clients
from torch import Tensor

from gfl_lightning.federated.federation import Federation
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.theory.connectivity import connectivity
from gfl_lightning.theory.gradient import gradient
from gfl_lightning.theory.heterogeneity import batch_variance, client_gradients, kappa_squared, sample_gradients


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(random_clients("sc"), MLP((5,)), APPNP(0.2, 4), seed=1)


def test_clients_average_to_the_gradient_of_the_objective(federation: Federation) -> None:
    weights = federation.start().weights
    found = client_gradients(*sample_gradients(federation, weights)).mean(0)
    expected = torch.cat([g.flatten() for g in gradient(federation, weights).values()])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


def test_kappa_is_a_sum_over_edges(federation: Federation) -> None:
    graph = federation.graph
    gradients = client_gradients(*sample_gradients(federation, federation.start().weights))
    assert graph.edge_weight is not None
    expected = 0.0
    for (i, j), weight in zip(graph.edge_index.T.tolist(), graph.edge_weight.tolist(), strict=True):
        expected += weight * float((gradients[i] - gradients[j]).square().sum()) / 2
    assert kappa_squared(federation, gradients) == pytest.approx(expected, rel=1e-10)


def with_weights(federation: Federation, weight: Tensor) -> Federation:
    """The same federation where each sample's loss has a weight."""
    return Federation(replace(federation.graph, weight=weight), MLP((5,)), APPNP(0.2, 4), seed=1)


def test_weights_of_losses_multiply_gradients(federation: Federation) -> None:
    """κ² and σ_G² from the unweighted gradients of single samples, each times its weight."""
    W, draw = federation.start().weights, torch.Generator().manual_seed(2)
    weight = 0.1 + 3 * torch.rand(federation.graph.num_samples, generator=draw, dtype=torch.float64)
    weighted = with_weights(federation, weight)
    plain, owner = sample_gradients(federation, W)
    found, same = sample_gradients(weighted, W)
    expected = weight[federation.graph.mask(Split.TRAIN), None] * plain
    assert torch.equal(owner, same)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)
    kappa, unweighted = (kappa_squared(weighted, client_gradients(g, owner)) for g in (found, plain))
    assert kappa == pytest.approx(kappa_squared(federation, client_gradients(expected, owner)), rel=1e-10)
    assert kappa != pytest.approx(unweighted, rel=0.01)


def test_twice_the_weight_is_four_times_kappa(federation: Federation) -> None:
    W = federation.start().weights
    twice = with_weights(federation, torch.full_like(federation.graph.x[:, 0], 2.0))
    (single, owner), (double, _) = sample_gradients(federation, W), sample_gradients(twice, W)
    once = kappa_squared(federation, client_gradients(single, owner))
    assert kappa_squared(twice, client_gradients(double, owner)) == pytest.approx(4 * once, rel=1e-10)
    assert batch_variance(double, owner, 2) == pytest.approx(4 * batch_variance(single, owner, 2), rel=1e-10)


def test_a_sample_whose_weight_vanishes_has_no_loss(federation: Federation) -> None:
    """A graph holds positive weights only; one of 1e-200 is 0 to all digits, and the label no longer matters."""
    graph, W = federation.graph, federation.start().weights
    rows = graph.mask(Split.TRAIN).nonzero().flatten()
    k = int(graph.client[rows].bincount().argmax())
    place = int((graph.client[rows] == k).nonzero()[0])
    weight = torch.ones_like(graph.x[:, 0])
    weight[rows[place]] = 1e-200
    gradients, owner = sample_gradients(with_weights(federation, weight), W)
    assert float(gradients[place].abs().max()) < 1e-190
    others, _ = sample_gradients(federation, W)
    others[place] = 0
    expected = kappa_squared(federation, client_gradients(others, owner))
    assert kappa_squared(federation, client_gradients(gradients, owner)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_spread_is_below_kappa_times_lambda_max(seed: int) -> None:
    graph = SC(num_clients=20, num_features=8, train_samples=3, test_samples=0, graph_seed=seed).graph
    federation = Federation(graph, seed=seed)
    gradients = client_gradients(*sample_gradients(federation, federation.start().weights)).double()
    spread = float((gradients - gradients.mean(0)).square().sum(1).mean())
    bound = connectivity(graph).lambda_max * kappa_squared(federation, gradients)
    assert 0 < spread <= bound * (1 + 1e-6)


@pytest.mark.parametrize("b", [1, 2, 3, None])
def test_variance_is_that_over_all_batches(b: int | None) -> None:
    draw = torch.Generator().manual_seed(0)
    owner = torch.tensor([0, 1, 1, 1, 2, 2, 2, 2])
    gradients = torch.randn(8, 3, generator=draw, dtype=torch.float64)
    expected = []
    for client in range(3):
        own = gradients[owner == client]
        batches = list(combinations(range(len(own)), len(own) if b is None else min(b, len(own))))
        errors = [float((own[list(batch)].mean(0) - own.mean(0)).square().sum()) for batch in batches]
        expected.append(sum(errors) / len(errors))
    assert batch_variance(gradients, owner, b) == pytest.approx(sum(expected) / 3, abs=1e-12)
