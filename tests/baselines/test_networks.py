"""The centralised networks: their shapes, their start, and their formulas written out with dense matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from graph_builders import random_clients
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.baselines.networks import appnp_net
from gfl_lightning.baselines.networks.appnp_net import APPNPNet
from gfl_lightning.baselines.networks.architecture import Architecture
from gfl_lightning.baselines.networks.gat import GAT
from gfl_lightning.baselines.networks.gcn import GCN
from gfl_lightning.baselines.networks.graph_net import GraphNet
from gfl_lightning.baselines.networks.graph_sage import GraphSAGE
from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.encoders.encoder import SizedEncoder
from gfl_lightning.models.encoders.mlp import MLP

ARCHITECTURES = [APPNPNet(), GCN(), GAT(), GraphSAGE()]


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shapes(net: GraphNet) -> set[tuple[int, ...]]:
    return {tuple(parameter.shape) for parameter in net.parameters()}


def unweighted(graph: ClientGraph) -> ClientGraph:
    return replace(graph, edge_weight=None)


def adjacency(graph: ClientGraph, weighted: bool) -> Tensor:
    A = torch.zeros(graph.num_clients, graph.num_clients, dtype=torch.float64)
    A[tuple(graph.edge_index)] = 1.0 if graph.edge_weight is None or not weighted else graph.edge_weight
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
    first: dict[str, Tensor] = {}
    second: dict[str, Tensor] = {}
    for name, parameter in net.named_parameters():
        layer, _, rest = name.partition(".")
        (first if layer == "first" else second)[rest] = parameter.detach()
    return first, second


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        (APPNPNet(), {(64, 100), (7, 64)}),
        (GCN(), {(64, 100), (7, 64)}),
        (GAT(), {(64, 100), (1, 8, 8), (7, 64), (1, 1, 7)}),
        (GraphSAGE(), {(64, 100), (7, 64)}),
    ],
)
def test_shapes_are_the_papers_and_nothing_has_a_bias(
    architecture: Architecture, expected: set[tuple[int, ...]]
) -> None:
    net = architecture.build(100, 7, drawn())
    assert shapes(net) == expected
    assert not [name for name, _ in net.named_parameters() if "bias" in name]
    z = net(torch.zeros(3, 100), net.edges(unweighted(random_clients("dnc", 3, dtype=torch.float32))))
    assert torch.equal(z, torch.zeros(3, 7))


def test_appnp_is_the_formula() -> None:
    graph = random_clients("dnc")
    net = APPNPNet(5, 0.2, 4).build(6, 3, drawn()).double()
    W1, W2 = net.get_parameter("W1"), net.get_parameter("W2")
    P, H = normalized(graph), torch.relu(graph.x @ W1.T) @ W2.T
    powers = [torch.linalg.matrix_power(P, i) @ H for i in range(5)]
    expected = sum(0.2 * 0.8**i * powers[i] for i in range(4)) + 0.8**4 * powers[4]
    torch.testing.assert_close(net(graph.x, net.edges(graph)), expected)


def test_gcn_is_the_formula() -> None:
    graph = random_clients("dnc")
    net = GCN(5).build(6, 3, drawn()).double()
    first, second = layers(net)
    P = normalized(graph)
    expected = P @ torch.relu(P @ graph.x @ first["lin.weight"].T) @ second["lin.weight"].T
    torch.testing.assert_close(net(graph.x, net.edges(graph)), expected)


def test_gat_is_the_formula() -> None:
    graph = unweighted(random_clients("dnc"))
    net = GAT(16).build(6, 3, drawn()).double()
    first, second = layers(net)
    A = adjacency(graph, weighted=False) + torch.eye(graph.num_clients)
    expected = attention(A, F.elu(attention(A, graph.x, first, 8)), second, 1)
    torch.testing.assert_close(net(graph.x, net.edges(graph)), expected)


def test_sage_is_the_formula() -> None:
    graph = unweighted(random_clients("dnc"))
    net = GraphSAGE(5).build(6, 3, drawn()).double()
    first, second = layers(net)
    A = adjacency(graph, weighted=False)
    mean = A / A.sum(1, keepdim=True)
    h = torch.relu(mean @ graph.x @ first["lin_l.weight"].T + graph.x @ first["lin_r.weight"].T)
    expected = mean @ h @ second["lin_l.weight"].T + h @ second["lin_r.weight"].T
    torch.testing.assert_close(net(graph.x, net.edges(graph)), expected)


def test_dense_and_sparse_propagation_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_clients("dnc")
    net = APPNPNet().build(6, 3, drawn()).double()
    (A,) = dense = net.edges(graph)
    assert A.shape == (10, 10)
    monkeypatch.setattr(appnp_net, "DENSE_UP_TO", 5)
    index, _ = sparse = net.edges(graph)
    assert index.shape == (2, graph.edge_index.shape[1] + 10)
    torch.testing.assert_close(net(graph.x, sparse), net(graph.x, dense))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_generator_alone_determines_the_start(architecture: Architecture) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    net = architecture.build(10, 3, drawn())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = architecture.build(10, 3, drawn()), architecture.build(10, 3, drawn(1))
    for a, b, c in zip(net.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_appnp_starts_as_the_encoder_does() -> None:
    net = APPNPNet().build(10, 3, drawn())
    for name, weight in SizedEncoder(MLP(), 10, 3).initial_weights(drawn()).items():
        assert torch.equal(net.get_parameter(name), weight)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_features_are_met_through_the_feature_weights_alone(architecture: Architecture) -> None:
    """Where they are zero, the network does not see the features; no other parameter has their dimension."""
    graph = unweighted(random_clients("dnc", dtype=torch.float32))
    net = architecture.build(6, 3, drawn())
    named = dict(net.named_parameters())
    assert set(net.feature_weights()) == {name for name, weight in named.items() if weight.shape[-1] == 6}
    with torch.no_grad():
        for name in net.feature_weights():
            named[name].zero_()
    assert torch.equal(net(graph.x, net.edges(graph)), torch.zeros(10, 3))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: GCN().build(0, 3, drawn()), "num_features must be at least 1, got 0."),
        (lambda: APPNPNet().build(0, 3, drawn()), "num_features must be at least 1, got 0."),
        (lambda: GAT().build(10, 0, drawn()), "num_classes must be at least 1, got 0."),
        (lambda: GraphSAGE(0), "hidden must be at least 1, got 0."),
        (lambda: GCN(0), "hidden must be at least 1, got 0."),
        (lambda: APPNPNet(0), "hidden must be at least 1, got 0."),
        (lambda: GAT(12), "hidden must be a multiple of 8, the number of heads, got 12."),
        (lambda: APPNPNet(alpha=0.0), "alpha must lie in (0, 1], got 0.0."),
        (lambda: APPNPNet(M=0), "M must be at least 1, got 0."),
    ],
)
def test_refusals(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InputError) as refusal:
        make()
    assert str(refusal.value) == text


@pytest.mark.parametrize(("architecture", "name"), [(GAT(), "GAT"), (GraphSAGE(), "GraphSAGE")])
def test_a_network_without_use_for_edge_weights_refuses_them(architecture: Architecture, name: str) -> None:
    net = architecture.build(6, 3, drawn())
    with pytest.raises(InputError, match=f"^graph must have no edge weights for {name}, which takes none, got Client"):
        net.edges(random_clients("dnc"))
