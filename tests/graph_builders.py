"""Small client graphs for tests, and hypothesis strategies that draw them."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.loss import Loss


def nodes(N: int, edges: list[tuple[int, int]] | Tensor, weight: list[float] | None = None) -> ClientGraph:
    """One sample per client, all in training, features that tell the clients apart."""
    return ClientGraph.from_edges(
        x=torch.arange(2.0 * N).reshape(N, 2),
        y=torch.arange(N) % 2,
        client=torch.arange(N),
        split=torch.full((N,), int(Split.TRAIN), dtype=torch.int8),
        shared=torch.ones(N, dtype=torch.bool),
        edge_index=edges if isinstance(edges, Tensor) else torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T,
        num_classes=2,
        edge_weight=None if weight is None else torch.tensor(weight),
    )


def columns(graph: ClientGraph) -> dict[str, Tensor]:
    """The tensors of a graph by name."""
    return {name: value for name, value in vars(graph).items() if isinstance(value, Tensor)}


def assert_same_bits(a: ClientGraph, b: ClientGraph) -> None:
    for name in ("x", "y", "client", "split", "shared", "edge_index"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert a.num_classes == b.num_classes
    assert (a.edge_weight is None) == (b.edge_weight is None)
    assert a.edge_weight is None or torch.equal(a.edge_weight, b.edge_weight)


@st.composite
def client_graphs(draw: st.DrawFn, weighted: bool | None = None) -> ClientGraph:
    """Ragged client graphs with any edges, weights and splits."""
    N = draw(st.integers(2, 12))
    owned = draw(st.lists(st.integers(1, 4), min_size=N, max_size=N))
    client = torch.repeat_interleave(torch.arange(N), torch.tensor(owned))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    order = torch.randperm(len(client), generator=generator)
    edges = torch.tensor(
        draw(st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)), max_size=3 * N)), dtype=torch.int64
    ).reshape(-1, 2)
    has_weight = draw(st.booleans()) if weighted is None else weighted
    weight = torch.rand(len(edges), generator=generator, dtype=torch.float64) + 0.1 if has_weight else None
    return ClientGraph.from_edges(
        x=torch.randn(len(client), 3, generator=generator, dtype=torch.float64),
        y=torch.randint(3, (len(client),), generator=generator),
        client=client[order],
        split=torch.randint(-1, 3, (len(client),), generator=generator, dtype=torch.int8),
        shared=torch.ones(len(client), dtype=torch.bool),
        edge_index=edges.T,
        num_classes=3,
        edge_weight=weight,
    )


def random_clients(
    task: str, N: int = 10, d: int = 6, c: int = 3, seed: int = 0, dtype: torch.dtype = torch.float64
) -> ClientGraph:
    """A small weighted client graph of a task; in snc and sc clients own one to five samples, in mixed order."""
    generator = torch.Generator().manual_seed(seed)
    owned = torch.ones(N, dtype=torch.int64) if task == "dnc" else 1 + torch.arange(N) % 5
    client = torch.repeat_interleave(torch.arange(N), owned)
    if task != "dnc":
        client = client[torch.randperm(len(client), generator=generator)]
    S = len(client)
    if task == "sc":
        y = torch.arange(S) % c
        split = torch.where(torch.rand(S, generator=generator) < 0.6, 0, torch.randint(1, 3, (S,), generator=generator))
        first = torch.tensor([int((client == k).nonzero()[0]) for k in range(N)])
        split[first] = int(Split.TRAIN)
        shared = split == int(Split.TRAIN)
    else:
        y = (torch.arange(N) % c)[client]
        split = torch.where(torch.arange(N) < 2 * c, 0, 1 + torch.arange(N) % 2)[client]
        shared = torch.ones(S, dtype=torch.bool)
    edges = torch.stack([torch.arange(N), (torch.arange(N) + 1) % N])
    edges = torch.cat([edges, torch.randint(N, (2, N), generator=generator)], 1)
    return ClientGraph.from_edges(
        x=torch.randn(S, d, generator=generator, dtype=torch.float64).to(dtype),
        y=y,
        client=client,
        split=split.to(torch.int8),
        shared=shared,
        edge_index=edges,
        num_classes=c,
        edge_weight=(torch.rand(edges.shape[1], generator=generator, dtype=torch.float64) + 0.5).to(dtype),
    )


def with_numbers(graph: ClientGraph, loss: Loss, seed: int = 0) -> ClientGraph:
    """The graph with labels that are numbers of at least 0, larger where the first feature and the class are."""
    noise = torch.rand(graph.num_samples, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    y = (2 * graph.y + graph.x[:, 0].double().exp() + 3 * noise).round(decimals=3)
    y = torch.where(graph.y < 0, torch.nan, y)
    return replace(graph, y=y, num_classes=1, loss=loss.fitted(y[graph.mask(Split.TRAIN)]))
