"""The centralised networks: their shapes, their start, and their formulas written out with dense matrices."""

from __future__ import annotations

import math

import pytest
import torch
from graph_builders import random_clients
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.baselines.networks import GAT, GCN, APPNPNet, GraphNet, GraphSAGE
from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.encoders.encoder import SizedEncoder

NETS = [APPNPNet, GCN, GAT, GraphSAGE]


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shapes(net: GraphNet) -> set[tuple[int, ...]]:
    return {tuple(parameter.shape) for parameter in net.parameters()}


def adjacency(graph: ClientGraph, weighted: bool) -> Tensor:
    A = torch.zeros(graph.num_clients, graph.num_clients, dtype=torch.float64)
    A[tuple(graph.edge_index)] = graph.edge_weight if weighted else 1.0
    return A


def normalized(graph: ClientGraph) -> Tensor:
    A = adjacency(graph, weighted=True) + torch.eye(graph.num_clients)
    scale = A.sum(1).rsqrt()
    return scale[:, None] * A * scale


def attention(A: Tensor, h: Tensor, layer: dict[str, Tensor], heads: int) -> Tensor:
    """softmax over the neighbourhood of leaky_relu(a·h_k + b·h_j), heads side by side."""
    found = []
    for head, W in enumerate(layer["lin.weight"].chunk(heads)):
        g = h @ W.T
        score = F.leaky_relu((g @ layer["att_dst"][0, head])[:, None] + g @ layer["att_src"][0, head], 0.2)
        found.append(score.masked_fill(A == 0, -math.inf).softmax(1) @ g)
    return torch.cat(found, 1)


def layers(net: GraphNet) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    first, second = ({}, {})
    for name, parameter in net.named_parameters():
        layer, _, rest = name.partition(".")
        (first if layer == "first" else second)[rest] = parameter.detach()
    return first, second


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (APPNPNet, {(64, 100), (7, 64)}),
        (GCN, {(64, 100), (7, 64)}),
        (GAT, {(64, 100), (1, 8, 8), (7, 64), (1, 1, 7)}),
        (GraphSAGE, {(64, 100), (7, 64)}),
    ],
)
def test_shapes_are_the_papers_and_nothing_has_a_bias(kind: type[GraphNet], expected: set[tuple[int, ...]]) -> None:
    net = kind(100, 7, drawn())
    assert shapes(net) == expected
    assert not [name for name, _ in net.named_parameters() if "bias" in name]
    z = net(torch.zeros(3, 100), net.edges(random_clients("dnc", 3, dtype=torch.float32)))
    assert torch.equal(z, torch.zeros(3, 7))


def test_appnp_is_the_formula() -> None:
    graph = random_clients("dnc")
    net = APPNPNet(6, 3, drawn(), 5, 0.2, 4).double()
    P, H = normalized(graph), torch.relu(graph.x @ net.W1.T) @ net.W2.T
    powers = [torch.linalg.matrix_power(P, i) @ H for i in range(5)]
    expected = sum(0.2 * 0.8**i * powers[i] for i in range(4)) + 0.8**4 * powers[4]
    torch.testing.assert_close(net(graph.x, net.edges(graph)), expected)


def test_gcn_is_the_formula() -> None:
    graph = random_clients("dnc")
    net = GCN(6, 3, drawn(), 5).double()
    first, second = layers(net)
    P = normalized(graph)
    expected = P @ torch.relu(P @ graph.x @ first["lin.weight"].T) @ second["lin.weight"].T
    torch.testing.assert_close(net(graph.x, net.edges(graph)), expected)


def test_gat_is_the_formula() -> None:
    graph = random_clients("dnc")
    net = GAT(6, 3, drawn(), 16).double()
    first, second = layers(net)
    A = adjacency(graph, weighted=False) + torch.eye(graph.num_clients)
    expected = attention(A, F.elu(attention(A, graph.x, first, 8)), second, 1)
    torch.testing.assert_close(net(graph.x, net.edges(graph)), expected)


def test_sage_is_the_formula() -> None:
    graph = random_clients("dnc")
    net = GraphSAGE(6, 3, drawn(), 5).double()
    first, second = layers(net)
    A = adjacency(graph, weighted=False)
    mean = A / A.sum(1, keepdim=True)
    h = torch.relu(mean @ graph.x @ first["lin_l.weight"].T + graph.x @ first["lin_r.weight"].T)
    expected = mean @ h @ second["lin_l.weight"].T + h @ second["lin_r.weight"].T
    torch.testing.assert_close(net(graph.x, net.edges(graph)), expected)


@pytest.mark.parametrize("kind", NETS)
def test_the_generator_alone_determines_the_start(kind: type[GraphNet]) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    net = kind(10, 3, drawn())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = kind(10, 3, drawn()), kind(10, 3, drawn(1))
    for a, b, c in zip(net.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_appnp_starts_as_the_encoder_does() -> None:
    net = APPNPNet(10, 3, drawn())
    for name, weight in Encoder(10, 3).initial_weights(drawn()).items():
        assert torch.equal(net.get_parameter(name), weight)


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (GCN, (0, 3), "num_features must be at least 1, got 0."),
        (GAT, (10, 1), "num_classes must be at least 2, got 1."),
        (GraphSAGE, (10, 3, 0), "hidden must be at least 1, got 0."),
        (GAT, (10, 3, 12), "hidden must be a multiple of 8, the number of heads, got 12."),
        (APPNPNet, (10, 3, 64, 0.0), "alpha must lie in (0, 1], got 0.0."),
        (APPNPNet, (10, 3, 64, 0.1, 0), "M must be at least 1, got 0."),
    ],
)
def test_refusals(kind: type[GraphNet], arguments: tuple[float, ...], text: str) -> None:
    features, classes, *rest = arguments
    with pytest.raises(InputError) as refusal:
        kind(features, classes, drawn(), *rest)
    assert str(refusal.value) == text
