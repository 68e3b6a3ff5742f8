"""The DNC, SNC and SC recipes: who trains, what is fixed and what is redrawn, and what is impossible."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest
import torch
from graph_builders import assert_same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.datasets.snc import SNC

RECIPES = [DNC, SNC, SC]
Recipe = type[DNC] | type[SNC] | type[SC]


def networkx_graph(graph: ClientGraph, clients: Tensor | None = None) -> nx.Graph:
    reference = nx.Graph()
    reference.add_nodes_from(range(graph.num_clients))
    reference.add_edges_from(graph.edge_index.T.tolist())
    return reference if clients is None else reference.subgraph(clients.tolist())


@pytest.mark.parametrize(("recipe", "samples"), [(DNC, 1), (SNC, 40)])
@pytest.mark.parametrize("seed", range(10))
def test_node_classification_sets(recipe: Recipe, samples: int, seed: int) -> None:
    graph = recipe(graph_seed=seed).graph
    assert (graph.num_clients, graph.num_features, graph.num_classes) == (200, 100, 2)
    assert graph.counts().unique().tolist() == [samples]
    clients = {part: set(graph.client[graph.mask(part)].tolist()) for part in Split}
    assert [len(clients[part]) for part in (Split.TRAIN, Split.VAL, Split.TEST)] == [20, 20, 160]
    assert not clients[Split.TRAIN] & clients[Split.VAL]
    assert not clients[Split.TRAIN] & clients[Split.TEST]
    assert not clients[Split.VAL] & clients[Split.TEST]
    assert bool(graph.shared.all())
    label = torch.zeros(200, dtype=torch.int64).scatter_(0, graph.client, graph.y)
    assert torch.equal(label[graph.client], graph.y)
    assert torch.bincount(label[graph.training_clients]).tolist() == [10, 10]
    assert nx.is_connected(networkx_graph(graph, graph.training_clients))


@pytest.mark.parametrize("seed", range(10))
def test_supervised_sets(seed: int) -> None:
    graph = SC(graph_seed=seed).graph
    assert (graph.num_clients, graph.num_samples) == (50, 6000)
    for part, expected in ((Split.TRAIN, 10), (Split.VAL, 10), (Split.TEST, 100)):
        assert graph.counts(graph.mask(part)).unique().tolist() == [expected]
    assert torch.equal(graph.shared, graph.mask(Split.TRAIN))
    assert nx.is_connected(networkx_graph(graph))


def test_supervised_labels_follow_the_tag_and_features_the_label() -> None:
    graph = SC(num_clients=100, train_samples=400, val_samples=1, test_samples=0, mu=10).graph
    positive = torch.zeros(100).scatter_add_(0, graph.client, graph.y.float()) / graph.counts()
    sigma = math.sqrt(0.21 / 401)
    high = positive > 0.5
    assert int(high.sum()) == 50
    assert positive[high].mean().item() == pytest.approx(0.7, abs=5 * sigma / math.sqrt(50))
    assert positive[~high].mean().item() == pytest.approx(0.3, abs=5 * sigma / math.sqrt(50))
    means = [graph.x[graph.y == label].mean(0) for label in (0, 1)]
    assert torch.cosine_similarity(means[0], means[1], dim=0) < -0.9


@pytest.mark.parametrize("recipe", RECIPES)
def test_same_seeds_same_bits(recipe: Recipe) -> None:
    assert_same_bits(recipe(graph_seed=3, repetition=2).graph, recipe(graph_seed=3, repetition=2).graph)


@pytest.mark.parametrize("recipe", RECIPES)
def test_repetition_redraws_features_and_sc_labels_alone(recipe: Recipe) -> None:
    data = recipe(graph_seed=3)
    first, second = data.graph, data.repeated(1).graph
    assert_same_bits(second, recipe(graph_seed=3, repetition=1).graph)
    assert torch.equal(first.edge_index, second.edge_index)
    assert torch.equal(first.split, second.split)
    assert not torch.equal(first.x, second.x)
    assert torch.equal(first.y, second.y) == (recipe is not SC)
    assert not torch.equal(first.edge_index.sum(1), recipe(graph_seed=4).graph.edge_index.sum(1))


@pytest.mark.parametrize(("recipe", "fixed"), [(DNC, False), (SNC, True), (SC, True)])
def test_direction_is_fixed_with_the_graph_where_the_recipe_says_so(recipe: Recipe, fixed: bool) -> None:
    def direction(repetition: int) -> Tensor:
        graph = recipe(mu=1e4, repetition=repetition).graph
        return torch.nn.functional.normalize((graph.x * (2 * graph.y - 1)[:, None]).mean(0), dim=0)

    assert (float(direction(0) @ direction(1)) > 0.99) == fixed


def test_a_hundred_thousand_clients_without_an_n_by_n_array() -> None:
    tracemalloc.start()
    graph = DNC(num_clients=100_000, num_features=4).graph
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert graph.num_edges == pytest.approx(400_000, rel=0.02)
    assert peak < 500e6
    assert nx.is_connected(networkx_graph(graph, graph.training_clients))


@given(st.integers(20, 120), st.floats(1, 12), st.floats(0, 1), st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_any_parameters_give_a_graph_or_a_sentence(N: int, degree: float, share: float, seed: int) -> None:
    try:
        graph = DNC(N, 5, degree, share * math.sqrt(degree), 1, seed).graph
    except InputError as refusal:
        assert str(refusal).startswith("degree must")  # noqa: PT017  # either outcome is right
    else:
        assert nx.is_connected(networkx_graph(graph, graph.training_clients))
        difference = np.diff(torch.bincount(graph.y[graph.mask(Split.TRAIN)], minlength=2))
        assert abs(int(difference[0])) <= 1


@pytest.mark.parametrize(
    ("construct", "sentence"),
    [
        (lambda: DNC(num_clients=10), "num_clients must be at least 20, .*, got 10"),
        (lambda: DNC(num_features=-1), "num_features must be at least 1, got -1"),
        (lambda: DNC(repetition=-1), "repetition must be at least 0, got -1"),
        (lambda: DNC(graph_seed=-1), "graph_seed must be at least 0, got -1"),
        (lambda: DNC(mu=-1), "mu must be at least 0, got -1"),
        (lambda: DNC(mu=math.inf), "mu must be finite, got inf"),
        (lambda: DNC(lam=3), r"lam must be at most √degree = 2.828, .*, got 3"),
        (lambda: SNC(num_clients=19), "num_clients must be at least 20, .*, got 19"),
        (lambda: SNC(samples_per_client=1.5), "samples_per_client must be a whole number of at least 1, got 1.5"),  # type: ignore[arg-type]
        (lambda: SNC(samples_per_client=0), "samples_per_client must be at least 1, got 0"),
        (lambda: SC(train_samples=0), "train_samples must be at least 1, got 0"),
        (lambda: SC(test_samples=-1), "test_samples must be at least 0, got -1"),
        (lambda: SC(degree=4, lam=2), "lam must be below √degree = 2 by enough for the two classes to be joined, got"),
        (lambda: SC(degree=2, lam=1), "degree must be high enough for a connected graph of 50 clients, got '2 "),
        (lambda: DNC().repeated(-1), "repetition must be at least 0, got -1"),
    ],
)
def test_refused_on_construction(construct: Callable[[], DataSet], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        construct()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (DNC(degree=0.5, lam=0.1), "degree must be high enough for 20 class-balanced training clients .* mean"),
        (DNC(degree=4, lam=2), "degree must be high enough for 20 .* no connected component holds enough"),
        (DNC(degree=1e-18, lam=0), "degree must be high enough for 20 class-balanced training clients"),
    ],
)
def test_refused_when_no_draw_will_do(data: DNC, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        data.make()
