"""Planetoid, subCora and the karate club."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from graph_builders import assert_same_bits
from torch_geometric import datasets

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.karate import KarateClub
from gfl_lightning.graphs.datasets.planetoid import Planetoid, read_planetoid
from gfl_lightning.graphs.datasets.subcora import SubCora, SubCoraRecipe, _digest


def test_cora_is_pygs_cora(planetoid_root: Path, tmp_path: Path) -> None:
    shutil.copytree(planetoid_root / "Cora" / "raw", tmp_path / "Cora" / "raw")
    reference = datasets.Planetoid(str(tmp_path), "Cora")[0]
    graph = Planetoid("Cora", planetoid_root).graph
    assert torch.equal(graph.x, reference.x)
    assert torch.equal(graph.y, reference.y)
    assert torch.equal(graph.edge_index, reference.edge_index.flip(0))
    for part, mask in zip(list(Split)[1:], ("train_mask", "val_mask", "test_mask"), strict=True):
        assert torch.equal(graph.mask(part), reference[mask])


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> None:
        raise OSError("network is unreachable")

    monkeypatch.setattr("torch_geometric.datasets.planetoid.Planetoid.download", no_network)
    with pytest.raises(InputError, match=r"root must hold the files ind.cora.x, .*ind.cora.test.index in .*Cora/raw"):
        Planetoid("Cora", tmp_path).make()
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="name must be one of Cora, CiteSeer, PubMed, got 'Citeseer'"):
        Planetoid("Citeseer", tmp_path)


@pytest.fixture(scope="module")
def pieces(planetoid_root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[ClientGraph]]:
    cache = tmp_path_factory.mktemp("subcora")
    return cache, [SubCora(r, root=planetoid_root, cache=cache).graph for r in range(8)]


def test_every_piece_keeps_the_papers_rules(pieces: tuple[Path, list[ClientGraph]], planetoid_root: Path) -> None:
    data = read_planetoid("Cora", planetoid_root)
    cora = nx.Graph(data.edge_index.T.tolist())
    for file in pieces[0].iterdir():
        stored = json.loads(file.read_text())
        nodes, split = np.array(stored["nodes"]), np.array(stored["split"])
        train, val, test = (set(nodes[split == int(part)].tolist()) for part in list(Split)[1:])
        assert 30 <= len(train) <= 50
        assert len(val) == len(train)
        assert len(train | val | test) == len(nodes) == 300
        assert nx.is_connected(cora.subgraph(train))
        counts = np.bincount(data.y.numpy()[list(train)], minlength=7)
        assert counts.min() > 0
        assert counts.std() <= 2.5
        within = set(train)
        for _ in range(2):
            within |= {neighbour for node in within for neighbour in cora[node]}
        assert val | test <= within


def test_a_piece_is_the_induced_subgraph_with_raw_features(
    pieces: tuple[Path, list[ClientGraph]], planetoid_root: Path
) -> None:
    data = read_planetoid("Cora", planetoid_root)
    cora = nx.Graph(data.edge_index.T.tolist())
    by_split = {tuple(json.loads(f.read_text())["split"]): json.loads(f.read_text()) for f in pieces[0].iterdir()}
    for graph in pieces[1]:
        nodes = by_split[tuple(graph.split.tolist())]["nodes"]
        assert torch.equal(graph.x, data.x[nodes])
        assert set(graph.x.unique().tolist()) == {0.0, 1.0}
        edges = {frozenset((nodes[i], nodes[j])) for i, j in graph.edge_index.T.tolist()}
        assert edges == {frozenset(edge) for edge in cora.subgraph(nodes).edges}


def test_pieces_differ_and_repeat(pieces: tuple[Path, list[ClientGraph]], planetoid_root: Path, tmp_path: Path) -> None:
    cache, graphs = pieces
    assert len({tuple(graph.split.tolist()) for graph in graphs}) == len(graphs)
    assert_same_bits(SubCora(0, root=planetoid_root, cache=tmp_path).graph, graphs[0])
    assert_same_bits(SubCora(0, root=planetoid_root, cache=cache).graph, graphs[0])


def test_a_broken_cache_file_is_rebuilt(planetoid_root: Path, tmp_path: Path) -> None:
    graph = SubCora(0, root=planetoid_root, cache=tmp_path).graph
    (file,) = tmp_path.iterdir()
    whole = file.read_text()
    changed = json.loads(whole)
    changed["nodes"][0] += 1
    forged = json.loads(whole)
    forged["nodes"][-1] = 10**9
    forged["digest"] = _digest([forged["nodes"], forged["split"]])
    texts = (json.dumps(changed), json.dumps(forged), json.dumps({"key": 1}), "[" * 10**5)
    for broken in (whole[: len(whole) // 2], "", "[]", *texts):
        file.write_text(broken)
        assert_same_bits(SubCora(0, root=planetoid_root, cache=tmp_path).graph, graph)
        assert file.read_text() == whole


def test_other_parameters_never_share_a_cache_file(planetoid_root: Path, tmp_path: Path) -> None:
    SubCora(0, root=planetoid_root, cache=tmp_path).make()
    SubCora(0, seed=1, root=planetoid_root, cache=tmp_path).make()
    other = SubCora(0, recipe=SubCoraRecipe(clients=250), root=planetoid_root, cache=tmp_path).graph
    assert other.num_clients == 250
    assert len(list(tmp_path.iterdir())) == 3


def test_two_processes_may_build_at_once(planetoid_root: Path, tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(SubCora(1, root=planetoid_root, cache=tmp_path).make) for _ in range(2)]
        assert_same_bits(*(job.result() for job in jobs))
    (file,) = tmp_path.iterdir()
    json.loads(file.read_text())


def test_subcora_refusals(planetoid_root: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="max_train must lie between min_train and drawn, got 20"):
        SubCoraRecipe(max_train=20)
    with pytest.raises(InputError, match="clients must exceed twice max_train, got 100"):
        SubCoraRecipe(clients=100)
    with pytest.raises(InputError, match="drawn must be at most the 2708 nodes there are, got 3000"):
        SubCora(recipe=SubCoraRecipe(drawn=3000), root=planetoid_root, cache=tmp_path).make()
    with pytest.raises(InputError, match="max_draws must be large enough to find a piece, got 1 "):
        SubCora(recipe=SubCoraRecipe(max_class_std=0, max_draws=1), root=planetoid_root, cache=tmp_path).make()
    assert not list(tmp_path.iterdir())


def test_karate_club() -> None:
    graph = KarateClub(seed=1).graph
    assert (graph.num_clients, graph.num_edges, graph.num_classes) == (34, 78, 4)
    assert [int(graph.mask(part).sum()) for part in list(Split)[1:]] == [4, 10, 20]
    assert sorted(graph.y[graph.mask(Split.TRAIN)].tolist()) == [0, 1, 2, 3]
    assert_same_bits(graph, KarateClub(seed=1).graph)
    assert not torch.equal(graph.split, KarateClub(seed=2).graph.split)
    assert nx.is_isomorphic(nx.Graph(graph.edge_index.T.tolist()), nx.karate_club_graph())
