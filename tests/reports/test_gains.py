"""What one model gains over another, its interval, and what is drawn of a large graph."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.stats import t as student

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.reports.gains import Gain, client_gains, gain_over, sample_losses
from gfl_lightning.reports.page.graph_view import nearest_to_the_middle


def clients(sizes: list[int], numbers: bool = False, seed: int = 0) -> ClientGraph:
    draw = torch.Generator().manual_seed(seed)
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    y = torch.randint(2, (len(owner),), generator=draw)
    y = torch.rand(len(owner), generator=draw, dtype=torch.float64) if numbers else y
    return ClientGraph.from_edges(
        x=torch.ones(len(owner), 1),
        y=y,
        client=owner,
        split=torch.full((len(owner),), int(Split.TEST), dtype=torch.int8),
        shared=torch.ones(len(owner), dtype=torch.bool),
        edge_index=torch.tensor([[0], [1]]),
        num_classes=1 if numbers else 2,
        loss=SquaredError() if numbers else CrossEntropy(),
    )


def everything(graph: ClientGraph) -> torch.Tensor:
    return graph.mask(Split.TEST)


def shares(p: torch.Tensor) -> torch.Tensor:
    return torch.stack([1 - p, p], 1)


def test_losses_are_log_loss_and_absolute_error() -> None:
    graph = clients([3, 2])
    p = torch.tensor([0.1, 0.5, 0.9, 0.3, 0.0])
    found = sample_losses(graph, shares(p), everything(graph))
    for value, y, one in zip(found.tolist(), graph.y.tolist(), p.double().tolist(), strict=True):
        assert value == pytest.approx(-math.log(max(one if y else 1 - one, 1e-15)), rel=1e-5)
    graph = clients([3, 2], numbers=True)
    assert sample_losses(graph, p[:, None], everything(graph)).tolist() == pytest.approx((p - graph.y).abs().tolist())


def test_where_every_client_has_one_sample_the_interval_is_students() -> None:
    graph = clients([1] * 30, numbers=True)
    draw = torch.Generator().manual_seed(1)
    mine, theirs = (torch.rand(30, 1, generator=draw) for _ in range(2))
    found = gain_over(graph, mine, theirs, everything(graph))
    d = ((theirs[:, 0] - graph.y).abs() - (mine[:, 0] - graph.y).abs()).double().numpy()
    assert found.mean == pytest.approx(d.mean(), rel=1e-5)
    assert found.half_width == pytest.approx(student.ppf(0.975, 29) * d.std(ddof=1) / math.sqrt(30), rel=1e-4)


def test_a_sample_said_ten_times_is_no_ten_samples() -> None:
    draw = torch.Generator().manual_seed(2)
    mine, theirs = (torch.rand(20, generator=draw) for _ in range(2))
    once = clients([1] * 20, numbers=True)
    often = clients([10] * 20, numbers=True)
    often.y.copy_(once.y.repeat_interleave(10))
    few = gain_over(once, mine[:, None], theirs[:, None], everything(once))
    copied = (one.repeat_interleave(10)[:, None] for one in (mine, theirs))
    many = gain_over(often, *copied, everything(often))
    assert many.mean == pytest.approx(few.mean, rel=1e-5)
    assert many.half_width == pytest.approx(few.half_width, rel=1e-5)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Clients have levels of their own: an interval that took samples as independent would hold far less often."""
    draw = np.random.default_rng(0)
    graph, hits, times = clients([8] * 25, numbers=True), 0, 300
    owner = graph.client.numpy()
    graph.y.zero_()
    for _ in range(times):
        d = 0.3 + draw.normal(0, 1, 25)[owner] + draw.normal(0, 0.5, len(owner))
        mine, theirs = np.maximum(0, -d), np.maximum(0, d)
        pair = (torch.from_numpy(one)[:, None] for one in (mine, theirs))
        found = gain_over(graph, *pair, everything(graph))
        hits += abs(found.mean - 0.3) <= found.half_width
    assert 0.9 < hits / times < 0.985


def test_gains_of_clients_are_their_own() -> None:
    graph = clients([4, 1, 3], numbers=True)
    mine, theirs = graph.y[:, None].clone(), graph.y[:, None] + 1
    theirs[:4, 0] += torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    rows = everything(graph)
    rows[-3:] = False
    mean, width = client_gains(graph, mine, theirs, rows)
    assert mean[:2].tolist() == pytest.approx([1.5, 1.0])
    assert math.isnan(float(mean[2]))
    d = np.array([1.0, 2, 1, 2])
    assert float(width[0]) == pytest.approx(student.ppf(0.975, 3) * d.std(ddof=1) / 2, rel=1e-5)
    assert math.isnan(float(width[1]))


def test_nothing_is_sure_without_rows_or_with_one_client() -> None:
    graph = clients([5, 5], numbers=True)
    one = graph.client == 0
    p = graph.y[:, None]
    assert not gain_over(graph, p, p + 1, one).is_sure
    assert not gain_over(graph, p, p + 1, one & (graph.client == 1)).is_sure
    assert gain_over(graph, p, p + 1, everything(graph)).is_sure
    assert str(Gain(-0.5, 0.25)) == "−0.5000 ± 0.2500"


def test_of_a_large_graph_the_middle_is_drawn() -> None:
    N = 50
    path = csr_matrix((np.ones(N - 1), (np.arange(N - 1), np.arange(1, N))), shape=(N, N))
    spokes = csr_matrix((np.ones(3), ([20, 20, 20], [40, 41, 42])), shape=(N, N))
    A = path + path.T + spokes + spokes.T
    assert nearest_to_the_middle(A, N).tolist() == list(range(N))
    found = set(nearest_to_the_middle(A, 6).tolist())
    assert found == {20, 19, 21, 40, 41, 42}
    apart = csr_matrix(([1.0, 1.0], ([0, 1], [1, 0])), shape=(5, 5))
    assert len(nearest_to_the_middle(apart, 4)) == 4
