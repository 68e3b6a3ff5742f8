"""New rows scored by kept representations: those of the whole network, and of a network that one client joins."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graph_builders import random_clients
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.federated.exchange import scoring as module
from gfl_lightning.federated.exchange.prediction import Prediction
from gfl_lightning.federated.exchange.scoring import Scoring
from gfl_lightning.federated.personal.terms import Terms
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.placement import Placement
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.personal.shared import Shared

NOTHING_PERSONAL = (Shared(), Terms(torch.empty(0), torch.empty(0)))
AGGREGATORS = [APPNP(0.2, 4), SGC(3), Identity(), LearnablePolynomial(0.2, 3)]


def rows_of(x: Tensor, client: Tensor) -> ClientGraph:
    """Rows without labels of some clients without edges."""
    return ClientGraph.from_edges(
        x=x,
        y=torch.full((len(x),), -1),
        client=client,
        split=torch.full((len(x),), int(Split.NONE)),
        shared=torch.ones(len(x), dtype=torch.bool),
        edge_index=torch.empty(2, 0, dtype=torch.int64),
        num_classes=3,
    )


def placed(graph: ClientGraph, known: list[int], links: list[tuple[int, int]], weight: list[float]) -> Placement:
    pairs = torch.tensor(links, dtype=torch.int64).reshape(-1, 2).T
    weights = torch.tensor(weight, dtype=torch.float64)
    return Placement(graph.num_clients, graph.edge_index, graph.edge_weight, torch.tensor(known), pairs, weights)


@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=str)
def test_rows_of_known_clients_are_scored_as_in_the_whole_network(aggregator: Any) -> None:
    graph, encoder = random_clients("sc"), MLP((5,))
    whole = Prediction(graph, encoder, aggregator)
    weights = whole.model.initial_weights(torch.Generator().manual_seed(1), torch.float64)
    expected, shared = whole.logits_of(weights), whole.shared_at(weights)
    chosen = ((graph.client == 3) | (graph.client == 8)).nonzero().flatten()
    few = rows_of(graph.x[chosen], (graph.client[chosen] == 8).long())
    found = Scoring(few, whole.model, placed(graph, [3, 8], [], []), shared, *NOTHING_PERSONAL).logits_of(weights)
    torch.testing.assert_close(found, expected[chosen])
    one = rows_of(graph.x[chosen[:1]], torch.zeros(1, dtype=torch.int64))
    number = int(graph.client[chosen[0]])
    alone = Scoring(one, whole.model, placed(graph, [number], [], []), shared, *NOTHING_PERSONAL).logits_of(weights)
    torch.testing.assert_close(alone, expected[chosen[:1]])


def joined(graph: ClientGraph, x: Tensor, links: list[tuple[int, float]]) -> ClientGraph:
    """The network with one more client."""
    assert graph.edge_weight is not None
    n, S = graph.num_clients, len(x)
    ends = torch.tensor([[n] * len(links), [k for k, _ in links]], dtype=torch.int64)
    return ClientGraph.from_edges(
        x=torch.cat([graph.x, x]),
        y=torch.cat([graph.y, torch.full((S,), -1)]),
        client=torch.cat([graph.client, torch.full((S,), n)]),
        split=torch.cat([graph.split, torch.full((S,), int(Split.NONE), dtype=torch.int8)]),
        shared=torch.cat([graph.shared, torch.ones(S, dtype=torch.bool)]),
        edge_index=torch.cat([graph.edge_index, ends], 1),
        num_classes=3,
        edge_weight=torch.cat([graph.edge_weight, torch.tensor([w for _, w in links], dtype=torch.float64)]),
    )


@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=str)
@pytest.mark.parametrize("chunk", [1, 2**24])
def test_a_new_client_is_scored_as_if_it_joined_alone(
    aggregator: Any, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_ENTRIES", chunk)
    graph, encoder = random_clients("sc"), MLP((5,))
    whole = Prediction(graph, encoder, aggregator)
    draw = torch.Generator().manual_seed(1)
    weights = whole.model.initial_weights(draw, torch.float64)
    x = torch.randn(5, graph.num_features, generator=draw, dtype=torch.float64)
    links = {0: [(2, 0.7), (5, 1.5)], 2: [(0, 2.0)], 3: []}
    table = rows_of(x, torch.tensor([0, 0, 1, 2, 3]))
    pairs = [(k, j) for k, one in links.items() for j, _ in one]
    place = placed(graph, [-1, 4, -1, -1], pairs, [w for one in links.values() for _, w in one])
    found = Scoring(table, whole.model, place, whole.shared_at(weights), *NOTHING_PERSONAL).logits_of(weights)
    for k, own in links.items():
        rows = table.client == k
        expected = Prediction(joined(graph, x[rows], own), encoder, aggregator).logits_of(weights)
        torch.testing.assert_close(found[rows], expected[graph.num_samples :])


def test_representations_of_another_network_are_refused() -> None:
    graph = random_clients("sc")
    whole = Prediction(graph, MLP((5,)))
    with pytest.raises(InputError, match=r"shared must have the shape \(10, 3\), got \(4, 3\)"):
        Scoring(graph, whole.model, placed(graph, list(range(10)), [], []), torch.zeros(4, 3), *NOTHING_PERSONAL)
