"""Likeness of neighbours: found where it was put, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import torch

from gfl_lightning.graphs.assortativity import assortativity
from gfl_lightning.graphs.client_graph import ClientGraph, Split


def ring(noise: float, features: bool) -> ClientGraph:
    """Sixty clients on a ring, ill on one side; features tell the side, or nothing."""
    N, n = 60, 10
    draw = torch.Generator().manual_seed(0)
    client = torch.arange(N).repeat_interleave(n)
    side = (client < N // 2).long()
    flip = torch.rand(N * n, generator=draw) < noise
    k = torch.arange(N)
    x = torch.randn(N * n, 2, generator=draw)
    if features:
        x[:, 0] = side.float()
    return ClientGraph.from_edges(
        x=x,
        y=torch.where(flip, 1 - side, side),
        client=client,
        split=torch.full((N * n,), int(Split.TRAIN)),
        shared=torch.ones(N * n, dtype=torch.bool),
        edge_index=torch.stack([k, (k + 1) % N]),
        num_classes=2,
    )


def test_likeness_is_told_by_where_it_comes_from() -> None:
    plain = assortativity(ring(0.2, features=False))
    assert plain.labels is not None
    assert plain.residuals is not None
    assert plain.labels.value > 0.5
    assert plain.residuals.is_signal
    assert plain.sentence.startswith("the edges carry signal")
    explained = assortativity(ring(0.2, features=True))
    assert explained.labels is not None
    assert explained.residuals is not None
    assert explained.labels.is_signal
    assert not explained.residuals.is_signal
    assert explained.sentence.startswith("the edges say little that features do not")
    noise = assortativity(ring(0.5, features=False))
    assert noise.sentence.startswith("the edges carry no signal that shows")


def test_few_edges_tell_nothing() -> None:
    graph = ring(0.2, features=False)
    few = replace(graph, edge_index=graph.edge_index[:, :0])
    assert assortativity(few).sentence.startswith("fewer than 10 edges join clients with training rows")
