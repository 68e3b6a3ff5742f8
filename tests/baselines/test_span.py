"""Training in coordinates of the features' span against training on the features themselves."""

from __future__ import annotations

import pytest
import torch
from baseline_builders import ARCHITECTURES, nodes, same_bits

from gfl_lightning.baselines.central import CentralDescent, initial_weights
from gfl_lightning.baselines.span import on_span


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_span_of_the_features_takes_the_same_trajectory(name: str) -> None:
    architecture = ARCHITECTURES[name]
    graph = nodes(d=40, dtype=torch.float64)
    small, weights = on_span(graph, architecture, 3)
    assert small.x.shape == (14, 14)
    whole, spanned = CentralDescent(graph, architecture, 0.2, 3), CentralDescent(small, architecture, 0.2)
    states = [whole.start(), spanned.start(weights)]
    first = whole.logits_of(states[0].weights)
    for _ in range(40):
        (states[0], expected), (states[1], found) = whole.round(states[0]), spanned.round(states[1])
        for part in ("train", "val", "test"):
            assert found.metrics[part].loss == pytest.approx(expected.metrics[part].loss, rel=1e-9)
    logits = whole.logits_of(states[0].weights)
    torch.testing.assert_close(spanned.logits_of(states[1].weights), logits, rtol=1e-8, atol=1e-8)
    assert float((logits - first).abs().max()) > 0.5


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_nothing_but_the_features_and_the_weights_that_meet_them_changes(name: str) -> None:
    graph = nodes(d=40)
    small, weights = on_span(graph, ARCHITECTURES[name], 3)
    torch.testing.assert_close(small.x @ small.x.T, graph.x @ graph.x.T, rtol=1e-4, atol=1e-4)
    for column in ("y", "client", "split", "shared", "edge_index", "weight"):
        assert torch.equal(getattr(small, column), getattr(graph, column))
    plain = initial_weights(ARCHITECTURES[name], 40, 3, 3)
    for parameter, weight in plain.items():
        if weight.shape[-1] == 40:
            torch.testing.assert_close(small.x @ weights[parameter].T, graph.x @ weight.T, rtol=1e-4, atol=1e-5)
        else:
            assert torch.equal(weights[parameter], weight)


def test_fewer_features_than_clients_stay_as_they_are() -> None:
    graph = nodes()
    small, weights = on_span(graph, ARCHITECTURES["gcn"], 3)
    assert small is graph
    assert same_bits(weights, initial_weights(ARCHITECTURES["gcn"], 6, 3, 3))
