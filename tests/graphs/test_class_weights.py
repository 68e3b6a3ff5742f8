"""Class weights: balanced ones against their definition, given ones by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from graph_builders import assert_same_bits, random_clients

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.class_weights import weigh_classes
from gfl_lightning.graphs.client_graph import ClientGraph, Split


def test_balanced_weights_give_every_class_the_same_say() -> None:
    graph = weigh_classes(random_clients("sc"), "balanced", range(3))
    train = graph.mask(Split.TRAIN)
    totals = [float(graph.weight[train & (graph.y == code)].sum()) for code in range(3)]
    assert totals == pytest.approx([float(train.sum()) / 3] * 3)
    assert float(graph.weight[train].mean()) == pytest.approx(1)
    for code in range(3):
        assert len(graph.weight[graph.y == code].unique()) == 1


def test_given_weights_go_by_name() -> None:
    graph = random_clients("sc")
    assert weigh_classes(graph, None, range(3)) is graph
    found = weigh_classes(graph, {"no": 1.0, "maybe": 2.0, "yes": 5.0}, ["no", "maybe", "yes"]).weight
    assert torch.equal(found, torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)[graph.y])


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({"0": 1.0}, "class_weights must give a weight for each of 0, 1, 2, got"),
        ({"0": 1.0, "1": 1.0, "2": 0.0}, "class_weights must be positive and finite"),
        ({"0": 1.0, "1": 1.0, "2": float("inf")}, "class_weights must be positive and finite"),
    ],
)
def test_other_weights_are_refused(weights: dict[str, float], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        weigh_classes(random_clients("sc"), weights, range(3))


def test_weights_of_samples_survive_pyg_and_precision() -> None:
    graph = weigh_classes(random_clients("sc"), "balanced", range(3))
    again = ClientGraph.from_data(graph.to_data())
    assert_same_bits(graph, again)
    assert torch.equal(again.weight, graph.weight)
    single = graph.to(torch.float32)
    assert single.weight.dtype == torch.float32


def test_weights_that_do_not_fit_are_refused() -> None:
    graph = random_clients("sc")
    for weight, sentence in (
        (torch.ones(3), "weight must be floating point with one entry per sample"),
        (torch.zeros(graph.num_samples), "weight must be positive and finite"),
    ):
        with pytest.raises(InputError, match=sentence):
            replace(graph, weight=weight)
