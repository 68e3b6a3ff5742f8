"""Training in coordinates of the features' span against training on the features themselves."""

from __future__ import annotations

import pytest
import torch
from graph_builders import random_clients

from gfl_lightning.baselines import networks as baselines
from gfl_lightning.baselines.central import Architecture, CentralSamples, descend, network, on_span
from gfl_lightning.graphs.client_graph import ClientGraph


def graph() -> ClientGraph:
    made = random_clients("dnc", N=14, d=40, dtype=torch.float32)
    columns = {name: getattr(made, name) for name in ("x", "y", "client", "split", "shared", "edge_index")}
    return ClientGraph(**columns, num_classes=3)


@pytest.mark.parametrize("architecture", ["appnp", "gcn", "gat", "sage"])
def test_span_of_the_features_takes_the_same_trajectory(architecture: Architecture) -> None:
    nets = [network(architecture, 40, 3, hidden=16, seed=3) for _ in range(2)]
    whole = CentralSamples.of(graph(), nets[0])
    small = on_span(nets[1], CentralSamples.of(graph(), nets[1]))
    assert small.x.shape == (14, 14)
    for _ in range(40):
        logits = []
        for net, samples in zip(nets, (whole, small), strict=True):
            found, slope = samples.look(net)
            descend(net, slope, 0.2)
            logits.append(found)
        torch.testing.assert_close(logits[0], logits[1], rtol=1e-3, atol=1e-4)
    assert float(logits[0].abs().max()) > 0.5


def test_fewer_features_than_clients_stay_as_they_are() -> None:
    net = network("gcn", 6, 3)
    samples = CentralSamples.of(random_clients("dnc", N=14, dtype=torch.float32), net)
    assert on_span(net, samples) is samples


def test_dense_and_sparse_propagation_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network("appnp", 40, 3)
    dense = net(graph().x, net.edges(graph()))
    monkeypatch.setattr(baselines, "DENSE_UP_TO", 5)
    edges = net.edges(graph())
    assert not edges[0].is_floating_point()
    torch.testing.assert_close(net(graph().x, edges), dense)
