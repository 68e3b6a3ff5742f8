"""Drawn splits: seeded, of every client in sc, and connected in dnc and snc where the graph allows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from table_builders import clinics

from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.tables.network import Network, read_network
from gfl_lightning.graphs.tables.settings import Settings
from gfl_lightning.graphs.tables.splits import split_clients, split_rows

FRACTIONS = (0.6, 0.2, 0.2)


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 4), st.integers(0, 10**6), st.floats(0, 0.5))
@settings(max_examples=60, deadline=None)
def test_rows_are_split_within_each_client(N: int, n: int, c: int, seed: int, unlabelled: float) -> None:
    draw = np.random.default_rng(seed)
    client = draw.integers(N, size=N * n)
    label = np.where(draw.random(N * n) < unlabelled, -1, draw.integers(c, size=N * n))
    split = split_rows(client, label, FRACTIONS, np.random.default_rng(seed))
    assert np.array_equal(split == Split.NONE, label < 0)
    labelled = label >= 0
    moved = c + 1  # rows that a class without training rows, or validation, may take
    for k in np.unique(client[labelled]):
        own = (client == k) & labelled
        assert (split[own] == Split.TRAIN).any() or own.sum() == 1
        for part, share in zip((Split.TRAIN, Split.VAL, Split.TEST), FRACTIONS, strict=True):
            assert abs((split[own] == part).sum() - share * own.sum()) <= 2 + moved
    trained = set(label[split == Split.TRAIN])
    assert trained == set(label[labelled]) or labelled.sum() <= c + 1


def test_splits_of_rows_have_their_shares_and_their_seed() -> None:
    client = np.repeat(np.arange(300), 7)
    label = np.tile([0, 0, 0, 0, 1, 1, 2], 300)
    split = split_rows(client, label, FRACTIONS, np.random.default_rng(0))
    for code in range(3):
        shares = np.bincount(split[label == code], minlength=3) / (label == code).sum()
        np.testing.assert_allclose(shares, FRACTIONS, atol=0.06)
    assert np.array_equal(split, split_rows(client, label, FRACTIONS, np.random.default_rng(0)))
    assert not np.array_equal(split, split_rows(client, label, FRACTIONS, np.random.default_rng(1)))


def test_a_clients_training_labels_tell_nothing_of_its_test_labels_but_by_their_law() -> None:
    """Drawn as from an urn, 5 of 10 labels being 1: 6 rows have 3 ± 0.816 of them, not always 3."""
    client, label = np.repeat(np.arange(2000), 10), np.tile([0, 1], 10_000)
    split = split_rows(client, label, (0.6, 0.0, 0.4), np.random.default_rng(0))
    ones = np.bincount(client, weights=(split == Split.TRAIN) & (label == 1))
    assert abs(ones.mean() - 3) < 0.1
    assert abs(ones.std() - np.sqrt(6 * 0.5 * 0.5 * 4 / 9)) < 0.05


def test_a_rare_class_gets_its_training_row() -> None:
    for seed in range(30):
        label = np.zeros(60, dtype=np.int64)
        label[seed] = 1
        split = split_rows(np.repeat(np.arange(6), 10), label, FRACTIONS, np.random.default_rng(seed))
        assert split[seed] == Split.TRAIN


@given(st.integers(4, 60), st.integers(2, 4), st.integers(0, 10**6), st.floats(0, 0.4))
@settings(max_examples=60, deadline=None)
def test_clients_are_split_by_class(N: int, c: int, seed: int, unlabelled: float) -> None:
    draw = np.random.default_rng(seed)
    label = np.where(draw.random(N) < unlabelled, -1, draw.integers(c, size=N))
    ends = draw.integers(N, size=(2, 3 * N))
    A = adjacency_matrix(np.concatenate([ends, ends[::-1]], 1), N)
    split, connected = split_clients(label, A, FRACTIONS, np.random.default_rng(seed))
    assert np.array_equal(split == Split.NONE, label < 0)
    train = np.flatnonzero(split == Split.TRAIN)
    assert set(label[train]) == set(label[label >= 0])
    for code in np.unique(label[train]):
        of = label == code
        assert abs((split[of] == Split.TRAIN).sum() - 0.6 * of.sum()) <= 2
    if connected and len(train):
        assert connected_components(A[train][:, train], directed=False, return_labels=False) == 1
    assert (split == Split.VAL).any() or (label >= 0).sum() <= c + 1


def test_training_clients_are_connected_where_the_graph_is() -> None:
    N = 60
    ring = np.stack([np.arange(N), (np.arange(N) + 1) % N])
    A = adjacency_matrix(np.concatenate([ring, ring[::-1]], 1), N)
    for seed in range(10):
        _, connected = split_clients(np.arange(N) % 2, A, (0.5, 0.25, 0.25), np.random.default_rng(seed))
        assert connected
    nobody = adjacency_matrix(np.zeros((2, 0), dtype=np.int64), N)
    split, connected = split_clients(np.arange(N) % 2, nobody, FRACTIONS, np.random.default_rng(0))
    assert not connected
    assert np.bincount(split).tolist() == [36, 12, 12]


def read(folder: Path, task: str, **options: object) -> Network:
    samples, edges = clinics(40, 4, task)
    samples.to_csv(folder / "s.csv", index=False)
    edges.to_csv(folder / "e.csv", index=False)
    return read_network(str(folder / "s.csv"), str(folder / "e.csv"), Settings(**{"task": task, **options}))


@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_tables_without_a_split_get_one(tmp_path: Path, task: str) -> None:
    graph = read(tmp_path, task).graph
    shares = [float(graph.mask(part).double().mean()) for part in (Split.TRAIN, Split.VAL, Split.TEST)]
    np.testing.assert_allclose(shares, FRACTIONS, atol=0.05)
    if task != "sc":
        assert bool(graph.shared.all())
        parts = [graph.split[graph.client == k].unique() for k in range(40)]
        assert all(len(part) == 1 for part in parts)
    assert torch.equal(graph.split, read(tmp_path, task).graph.split)
    assert not torch.equal(graph.split, read(tmp_path, task, seed=1).graph.split)


def test_training_clients_that_are_not_connected_are_told(tmp_path: Path) -> None:
    samples, _ = clinics(40, 4, "snc")
    samples.to_csv(tmp_path / "s.csv", index=False)
    (tmp_path / "e.csv").write_text("a,b\nclinic 1,clinic 2\n")
    found = read_network(str(tmp_path / "s.csv"), str(tmp_path / "e.csv"), Settings(task="snc"))
    assert "falls into 39 components, 38 of them a single client" in found.warnings[0]
    assert found.warnings[1] == "no connected set of training clients was found: they are drawn by class alone."
