"""The data of the benchmark: Cora's where its files are at hand, and graphs of the same size where they are not."""

from __future__ import annotations

from dataclasses import replace

import torch

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.planetoid import Planetoid, default_root, raw_files
from gfl_lightning.graphs.datasets.subcora import SubCora

WORDS_PER_CLIENT = 18


def cora_is_here() -> bool:
    """Whether Cora's raw files are in the default root."""
    return all((default_root() / "Cora" / "raw" / file).is_file() for file in raw_files("Cora"))


def words_on_a_graph(N: int, edges: int, train: int, seed: int = 0) -> ClientGraph:
    """Random 0/1 features (1433, 7 classes, Cora's density) on a random graph of a given size."""
    generator = torch.Generator().manual_seed(seed)
    split = torch.full((N,), int(Split.TEST), dtype=torch.int8)
    order = torch.randperm(N, generator=generator)
    split[order[:train]], split[order[train : 2 * train]] = int(Split.TRAIN), int(Split.VAL)
    y = torch.empty(N, dtype=torch.int64)
    y[order] = torch.arange(N) % 7
    return ClientGraph.from_edges(
        x=(torch.rand(N, 1433, generator=generator) < WORDS_PER_CLIENT / 1433).float(),
        y=y,
        client=torch.arange(N),
        split=split,
        shared=torch.ones(N, dtype=torch.bool),
        edge_index=torch.randint(N, (2, edges), generator=generator),
        num_classes=7,
    )


def subcora_sized() -> ClientGraph:
    """300 clients, 1433 features, about 35 of them training."""
    return SubCora(repetition=11).graph if cora_is_here() else words_on_a_graph(300, 340, 35)


def cora_sized() -> ClientGraph:
    """2708 clients, 140 of them training."""
    return Planetoid("Cora").graph if cora_is_here() else words_on_a_graph(2708, 5278, 140)


def grown(N: int) -> ClientGraph:
    """cSBM DNC with N clients, 10 % but at most 1,000 of them training."""
    graph = DNC(num_clients=N).graph
    surplus = graph.mask(Split.TRAIN).nonzero().flatten()[1000:]
    split = graph.split.clone()
    split[surplus] = int(Split.NONE)
    return replace(graph, split=split)
