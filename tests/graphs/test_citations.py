"""Synthetic citation networks have the statistics that they are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.datasets.citations import Citations

SMALL: dict[str, Any] = {"num_clients": 2000, "num_words": 60, "num_val": 300, "num_test": 500}


def test_degrees_homophily_and_counts_are_as_asked() -> None:
    graph = Citations(**SMALL, degree=4.0, homophily=0.8, num_classes=4).graph
    inside = graph.y[graph.edge_index[0]] == graph.y[graph.edge_index[1]]
    edges = graph.edge_index.shape[1] / 2
    assert 0.93 * 4000 < edges <= 4000
    assert abs(float(inside.float().mean()) - 0.8) < 5 * np.sqrt(0.16 / edges)
    assert [int(graph.mask(part).sum()) for part in (Split.TRAIN, Split.VAL, Split.TEST)] == [80, 300, 500]
    assert graph.y[graph.mask(Split.TRAIN)].bincount().tolist() == [20] * 4
    degrees = graph.edge_index[0].bincount(minlength=2000)
    assert degrees.max() > 5 * degrees.float().mean()
    assert graph.x.unique().tolist() == [0.0, 1.0]


@pytest.mark.parametrize(("topical", "tells"), [(0.0, False), (0.8, True)])
def test_words_tell_of_the_class_where_they_are_topical(topical: float, tells: bool) -> None:
    """Nearest class mean of half the documents, on the other half: chance is about a third."""
    graph = Citations(**SMALL, num_classes=3, topical=topical, words_per_document=15).graph
    half = torch.arange(2000) < 1000
    means = torch.stack([graph.x[half & (graph.y == c)].mean(0) for c in range(3)])
    closest = torch.cdist(graph.x[~half], means).argmin(1)
    accuracy = float((closest == graph.y[~half]).float().mean())
    assert (accuracy > 0.7) == tells
    assert (accuracy < 0.5) != tells


def test_a_repetition_is_another_network_and_the_same_one_the_same_bits() -> None:
    one, again, other = Citations(**SMALL).graph, Citations(**SMALL).graph, Citations(**SMALL).repeated(1).graph
    assert torch.equal(one.x, again.x)
    assert torch.equal(one.edge_index, again.edge_index)
    assert not torch.equal(one.y, other.y)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_clients": 1000}, "num_clients must be at least 1620, got 1000"),
        ({"homophily": 1.5}, "homophily must lie in .0, 1., got 1.5"),
        ({"topical": -0.5}, "topical must lie in .0, 1., got -0.5"),
        ({"degree": 0.0}, "degree must be positive and finite, got 0.0"),
        ({"words_per_document": float("inf")}, "words_per_document must be positive and finite, got inf"),
        ({"num_classes": 1}, "num_classes must be at least 2, got 1"),
        ({"repetition": -1}, "repetition must be at least 0, got -1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Citations(**options)


def test_more_words_than_fit_the_memory_are_refused() -> None:
    with pytest.raises(InputError, match=r"num_words must need no more memory than the .*, got 1125899906842624"):
        Citations(num_words=2**50)
