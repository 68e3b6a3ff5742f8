"""A client's mix: the best of the simplex by its own validation rows, and nobody else's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.practice.mixing import mixed, mixing_weights


@pytest.fixture
def graph() -> ClientGraph:
    return SC(num_clients=20, num_features=5).graph


def guesses(graph: ClientGraph, number: int = 3) -> list[Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(graph.num_samples, 2, generator=draw).softmax(1).double() for _ in range(number)]


def goal(graph: ClientGraph, client: int, found: list[Tensor], weights: Tensor, strength: float) -> float:
    """Σ_s log Σ_j w_j p_j(y_s) + λ log w_1, sample by sample."""
    value = strength * float(weights[0].log())
    for s in range(graph.num_samples):
        if graph.split[s] == int(Split.VAL) and graph.client[s] == client:
            value += float(sum(weights[j] * found[j][s, graph.y[s]] for j in range(len(found))).log())
    return value


def test_it_is_the_best_point_of_the_simplex(graph: ClientGraph) -> None:
    found = guesses(graph)
    weights = mixing_weights(graph, found, strength=0.5)
    torch.testing.assert_close(weights.sum(1), torch.ones(20, dtype=torch.float64))
    for client in (0, 7):
        reached = goal(graph, client, found, weights[client], 0.5)
        for a in range(1, 20):
            for b in range(20 - a + 1):
                point = torch.tensor([a, b, 20 - a - b], dtype=torch.float64) / 20
                assert reached >= goal(graph, client, found, point, 0.5) - 1e-3


def test_no_client_loses_on_its_validation_rows(graph: ClientGraph) -> None:
    found = guesses(graph)
    together = mixed(graph, found)
    rows = graph.mask(Split.VAL)
    for client in range(20):
        mine = rows & (graph.client == client)
        gained = (together[mine, graph.y[mine]].log() - found[0][mine, graph.y[mine]].log()).sum()
        assert float(gained) >= -1e-9


def test_the_first_model_where_it_is_held_to_it_or_has_no_rows(graph: ClientGraph) -> None:
    found = guesses(graph)
    torch.testing.assert_close(mixed(graph, found, strength=1e9), found[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(mixed(graph, found[:1]), found[0])
    blind = replace(graph, split=torch.where(graph.mask(Split.VAL), int(Split.NONE), graph.split))
    torch.testing.assert_close(mixed(blind, found), found[0])


def test_it_looks_at_nobody_elses_rows_and_at_no_test_label(graph: ClientGraph) -> None:
    found = guesses(graph)
    before = mixing_weights(graph, found)
    other = (graph.client != 3) | ~graph.mask(Split.VAL)
    after = mixing_weights(replace(graph, y=torch.where(other, 1 - graph.y, graph.y)), found)
    torch.testing.assert_close(after[3], before[3])
    assert not torch.allclose(after[4], before[4])


def test_numbers_take_the_model_that_is_right(graph: ClientGraph) -> None:
    y = torch.linspace(-1, 1, graph.num_samples, dtype=torch.float64)
    numbers = replace(graph, y=y, num_classes=1, loss=SquaredError())
    wrong, right = (y + 1)[:, None], y[:, None]
    weights = mixing_weights(numbers, [wrong, right], strength=0.01)
    rows = torch.bincount(graph.client[graph.mask(Split.VAL)], minlength=20) > 0
    assert float(weights[rows, 1].min()) > 0.9
