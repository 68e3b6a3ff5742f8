"""Full-batch descent of networks against PyG's layers in a plain torch loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch_geometric.nn as pyg
from baseline_builders import ARCHITECTURES, clients, nodes, same_bits, with_losses_weighted
from torch import Tensor, nn
from torch.nn import functional as F

from gfl_lightning.baselines.central import CentralDescent, initial_weights
from gfl_lightning.baselines.networks.gat import GAT
from gfl_lightning.baselines.networks.gcn import GCN
from gfl_lightning.checks import InputError
from gfl_lightning.engine.best import Best
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.models.encoders.encoder import Weights


class PlainGNN(nn.Module):
    """PyG's layers with their default handling of edges."""

    def __init__(self, architecture: str, weights: Weights) -> None:
        super().__init__()
        self.architecture = architecture
        self.activation = F.elu if architecture == "gat" else F.relu
        if architecture == "appnp":
            self.W1, self.W2 = (nn.Parameter(weights[name].clone()) for name in ("W1", "W2"))
            self.propagate = pyg.APPNP(10, 0.1)
            return
        kinds: dict[str, tuple[nn.Module, nn.Module]] = {
            "gcn": (pyg.GCNConv(6, 16, bias=False), pyg.GCNConv(16, 3, bias=False)),
            "gat": (pyg.GATConv(6, 2, 8, bias=False), pyg.GATConv(16, 3, 1, bias=False)),
            "sage": (pyg.SAGEConv(6, 16, bias=False), pyg.SAGEConv(16, 3, bias=False)),
        }
        self.first, self.second = kinds[architecture]
        self.load_state_dict(weights)

    def forward(self, graph: ClientGraph) -> Tensor:
        row = graph.client.argsort()
        edges = (row[graph.edge_index],) + (() if graph.edge_weight is None else (graph.edge_weight,))
        if self.architecture == "appnp":
            return self.propagate(torch.relu(graph.x @ self.W1.T) @ self.W2.T, *edges)
        return self.second(self.activation(self.first(graph.x, *edges)), *edges)


def mean_loss(graph: ClientGraph, logits: Tensor, part: Split) -> Tensor:
    rows = graph.mask(part)
    return (graph.weight[rows] * F.cross_entropy(logits[rows], graph.y[rows], reduction="none")).mean()


@pytest.mark.parametrize("losses_weighted", [False, True])
@pytest.mark.parametrize(
    ("name", "edge_weights"),
    [("appnp", False), ("appnp", True), ("gcn", False), ("gcn", True), ("gat", False), ("sage", False)],
)
def test_is_plain_gradient_descent(name: str, edge_weights: bool, losses_weighted: bool) -> None:
    graph = with_losses_weighted(nodes(edge_weights)) if losses_weighted else nodes(edge_weights)
    engine = CentralDescent(graph, ARCHITECTURES[name], lr=0.2, seed=3)
    state, best = engine.start(), Best()
    expected: tuple[float, int, Weights] = (torch.inf, 0, {})
    plain = PlainGNN(name, state.weights)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.2)
    for number in range(1, 31):
        optimizer.zero_grad()
        mean_loss(graph, plain(graph), Split.TRAIN).backward()
        optimizer.step()
        state, report = engine.round(state)
        best = engine.choose(best, state, report)
        val_loss = mean_loss(graph, plain(graph), Split.VAL).item()
        assert report.metrics["val"].loss == pytest.approx(val_loss, rel=1e-4)
        if val_loss < expected[0]:
            expected = (val_loss, number, {n: p.detach().clone() for n, p in plain.named_parameters()})
    last = {name: parameter.detach() for name, parameter in plain.named_parameters()}
    torch.testing.assert_close(state.weights, last, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(engine.logits_of(state.weights), plain(graph).detach(), rtol=1e-4, atol=1e-6)
    assert best.round == expected[1]
    assert best.val_loss == pytest.approx(expected[0], rel=1e-5)
    torch.testing.assert_close(best.weights, expected[2], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_order_of_the_samples_is_no_matter(name: str) -> None:
    """Sorted by client the same samples give the same weights, and each sample the same logits."""
    mixed = with_losses_weighted(nodes())
    rows = mixed.client.argsort()
    columns = {name: getattr(mixed, name)[rows] for name in ("x", "y", "client", "split", "shared", "weight")}
    states = []
    for graph in (mixed, replace(mixed, **columns)):
        engine = CentralDescent(graph, ARCHITECTURES[name])
        state = engine.start()
        for _ in range(4):
            state, _ = engine.round(state)
        states.append((state.weights, engine.logits_of(state.weights)))
    assert same_bits(states[0][0], states[1][0])
    assert torch.equal(states[0][1][rows], states[1][1])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_start_is_known_before_the_data(name: str) -> None:
    engine = CentralDescent(nodes(), ARCHITECTURES[name], seed=7)
    weights = initial_weights(ARCHITECTURES[name], 6, 3, 7)
    assert same_bits(engine.start().weights, weights)
    assert engine.shapes == {name: tuple(weight.shape) for name, weight in weights.items()}


def test_gcn_learns_synthetic_dnc() -> None:
    engine = CentralDescent(DNC().graph, GCN(), lr=0.1)
    state, best = engine.start(), Best()
    for _ in range(300):
        state, report = engine.round(state)
        best = engine.choose(best, state, report)
    assert 0 < best.round <= 300
    assert engine.metrics_of(best.weights)["test"].accuracy > 0.85


def test_refusals() -> None:
    one_missing = nodes()
    one_missing = replace(one_missing, split=torch.where(one_missing.y == 2, int(Split.TEST), one_missing.split))
    for make, text in (
        (
            lambda: CentralDescent(clients()),
            "graph must have one sample per client for a centralised network, got '5 sam",
        ),
        (
            lambda: CentralDescent(nodes(True), GAT()),
            "graph must have no edge weights for GAT, which takes none, got Cl",
        ),
        (
            lambda: CentralDescent(one_missing),
            "graph must have a training sample of every class, got 'none of class [2]'",
        ),
        (lambda: CentralDescent(nodes(), lr=0), "lr must be positive and finite, got 0."),
        (lambda: CentralDescent(nodes(), seed=-1), "seed must be at least 0, got -1."),
        (lambda: initial_weights(GCN(), 6, 3, -1), "seed must be at least 0, got -1."),
        (lambda: initial_weights(GCN(), 0, 3), "num_features must be at least 1, got 0."),
    ):
        with pytest.raises(InputError) as refusal:
            make()
        assert str(refusal.value).startswith(text)
