"""Figures by what they hold: lines, colours, legends; and the layout by what it keeps together."""

from __future__ import annotations

import math
import sys
from io import BytesIO

import numpy as np
import pytest
import torch
from graph_builders import nodes, random_clients
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from gfl_lightning.checks import InputError
from gfl_lightning.engine.evaluation import client_score
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.reports.figures import client_graph, layout, loss_curves
from gfl_lightning.reports.style import BLUE, FAINT, VERMILLION


def legend(figure: Figure) -> list[str]:
    found = figure.axes[0].get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


def points(figure: Figure) -> list[tuple[str, int]]:
    """Colour and number of the points of each kind."""
    kinds = [c for c in figure.axes[0].collections if isinstance(c, PathCollection)]
    return [(to_hex(c.get_facecolor()[0]).upper(), len(c.get_offsets())) for c in kinds if len(c.get_offsets())]


def image(figure: Figure) -> Image.Image:
    buffer = BytesIO()
    figure.savefig(buffer)
    return Image.open(buffer)


def test_loss_curves_show_what_they_are_given() -> None:
    figure = loss_curves([1, 2, 3], {"train": [3.0, 2.0, 1.0], "validation": [3.0, math.nan, 2.5]}, best_round=2)
    axes = figure.axes[0]
    assert legend(figure) == ["train", "validation", "best round (2)"]
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 2, 3], [1, 2, 3], [2, 2]]
    assert list(axes.lines[0].get_ydata()) == [3, 2, 1]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "loss")
    assert image(figure).size == (960, 600)


def test_a_single_round_is_a_visible_point() -> None:
    figure = loss_curves([1], {"train": [0.5]})
    assert figure.axes[0].lines[0].get_marker() == "o"
    assert legend(figure) == ["train"]


def test_loss_curves_of_other_lengths_are_refused() -> None:
    with pytest.raises(InputError, match=r"curves\['val'\] must hold one loss per round \(2\), got 3\."):
        loss_curves([1, 2], {"val": [1.0, 2.0, 3.0]})
    with pytest.raises(InputError, match=r"curves must be at most 5, one for each colour, got 6\."):
        loss_curves([1], {str(i): [1.0] for i in range(6)})


def test_client_graph_tells_right_from_wrong_by_colour_and_shape() -> None:
    figure = client_graph(nodes(4, [(0, 1), (1, 2)]), torch.tensor([1.0, 0.0, math.nan, 1.0]))
    assert legend(figure) == ["no test sample (1)", "right (2)", "wrong (1)"]
    assert points(figure) == [(FAINT, 1), (BLUE, 2), (VERMILLION, 1)]
    (edges,) = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    assert len(edges.get_segments()) == 2
    assert image(figure).size == (960, 840)


def test_client_graph_shows_shares_on_a_scale() -> None:
    figure = client_graph(nodes(3, [(0, 1)]), torch.tensor([1.0, 0.25, 0.5]))
    assert figure.axes[1].get_ylabel() == "share of a client's test samples that are right"
    assert legend(figure) == []
    image(figure)


def test_client_graph_without_any_test_sample() -> None:
    figure = client_graph(nodes(2, []), torch.full((2,), math.nan))
    assert points(figure) == [(FAINT, 2)]
    image(figure)


def test_large_graphs_are_drawn_without_edges() -> None:
    N = 1501
    figure = client_graph(nodes(N, [(i, i + 1) for i in range(N - 1)]), torch.ones(N))
    assert not any(isinstance(c, LineCollection) for c in figure.axes[0].collections)
    assert points(figure) == [(BLUE, N)]


def test_client_graph_needs_an_entry_per_client() -> None:
    with pytest.raises(InputError, match=r"correct must have one entry per client \(3\), got \[2\]\."):
        client_graph(nodes(3, []), torch.ones(2))


def test_figures_leave_no_trace_in_pyplot() -> None:
    client_graph(nodes(3, [(0, 1)]), torch.ones(3))
    loss_curves([1, 2], {"train": [1.0, 2.0]})
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


@pytest.mark.parametrize("N", [1, 2, 3, 50])
def test_layout_is_finite_and_always_the_same(N: int) -> None:
    graph = nodes(N, [(i, (i + 1) % N) for i in range(N)])
    place = layout(graph)
    assert place.shape == (N, 2)
    assert np.isfinite(place).all()
    assert np.array_equal(place, layout(graph))
    assert len(np.unique(place, axis=0)) == N


def test_layout_keeps_communities_together() -> None:
    """Two cliques of 12 joined by one edge lie apart: any two members are nearer than the centres are."""
    half = range(12)
    edges = [(side + i, side + j) for side in (0, 12) for i in half for j in half if i < j] + [(0, 12)]
    place = layout(nodes(24, edges))
    left, right = place[:12], place[12:]
    between = np.linalg.norm(left.mean(0) - right.mean(0))
    inside = max(np.linalg.norm(side - side.mean(0), axis=1).mean() for side in (left, right))
    assert inside < between / 2


@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_client_score_counts_right_test_samples_by_client(task: str) -> None:
    graph = random_clients(task)
    logits = torch.randn(graph.num_samples, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = client_score(graph, logits)
    for k in range(graph.num_clients):
        rows = [s for s in range(graph.num_samples) if graph.client[s] == k and graph.split[s] == int(Split.TEST)]
        right = [float(logits[s].argmax() == graph.y[s]) for s in rows]
        assert float(found[k]) == pytest.approx(sum(right) / len(right) if right else math.nan, nan_ok=True)
