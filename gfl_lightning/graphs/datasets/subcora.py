"""subCora: small connected pieces of a citation network, by the paper's recipe, found fast and cached."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from torch_geometric.data import Data

from gfl_lightning.checks import InputError, require, require_count
from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.arrays import Index
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.planetoid import default_root, read_planetoid
from gfl_lightning.whole_files import whole_file

RECIPE_VERSION = 1
BATCH = 64


@dataclass(frozen=True)
class SubCoraRecipe:
    """How a piece is chosen.

    Some nodes are drawn; a connected component of them with every class becomes the training set. Nodes within 2 hops
    of it are the pool: as many validation nodes as training nodes, then test nodes.

    >>> SubCoraRecipe(clients=250).max_train
    50

    Args:
        drawn: nodes that are drawn.
        min_train: fewest training nodes.
        max_train: most training nodes.
        max_class_std: highest standard deviation of the training nodes' class counts.
        clients: nodes of the piece, where the pool has enough.
        max_draws: draws after which the search ends.
    """

    drawn: int = 800
    min_train: int = 30
    max_train: int = 50
    max_class_std: float = 2.5
    clients: int = 300
    max_draws: int = 1_000_000

    def __post_init__(self) -> None:
        require_count("min_train", self.min_train)
        between = self.min_train <= self.max_train <= self.drawn
        require(between, "max_train", "lie between min_train and drawn", self.max_train)
        require(self.max_class_std >= 0, "max_class_std", "be at least 0", self.max_class_std)
        require(self.clients > 2 * self.max_train, "clients", "exceed twice max_train", self.clients)
        require_count("max_draws", self.max_draws)


@dataclass(frozen=True)
class SubCora(DataSet):
    """A connected piece of Cora with 300 clients, by the paper's recipe; features are the raw 0/1 words.

    The chosen nodes are kept in ``cache`` in a file named by a digest of everything that determines them; a file that
    is broken or of other parameters is made anew.

    >>> SubCora(seed=1).repeated(3) == SubCora(repetition=3, seed=1)
    True

    Args:
        repetition: number of the piece.
        seed: of the search for pieces.
        root: folder of the Planetoid files; none means $GFL_PLANETOID_ROOT, else data/planetoid.
        cache: folder of the found pieces; none means root/SubCora.
        recipe: how a piece is chosen.
    """

    files: ClassVar[tuple[str, ...]] = ("root", "cache")
    repetition: int = 0
    seed: int = 0
    root: str | Path | None = None
    cache: str | Path | None = None
    recipe: SubCoraRecipe = SubCoraRecipe()

    def __post_init__(self) -> None:
        require_count("repetition", self.repetition, 0)
        require_count("seed", self.seed, 0)

    def make(self) -> ClientGraph:
        """The piece from the cache, or found and stored there."""
        data = read_planetoid("Cora", self.root)
        key = {
            "recipe_version": RECIPE_VERSION,
            "recipe": asdict(self.recipe),
            "seed": self.seed,
            "repetition": self.repetition,
            "source": _digest([data.edge_index.tolist(), data.y.tolist()]),
        }
        file = self._folder / f"{_digest(key)}.json"
        piece = _load(file, key, data.num_nodes)
        if piece is None:
            piece = find_piece(data, self.recipe, np.random.default_rng([self.seed, self.repetition]))
            _store(file, key, piece)
        return _client_graph(data, *piece)

    def repeated(self, repetition: int) -> SubCora:
        """Another piece."""
        return replace(self, repetition=repetition)

    @property
    def _folder(self) -> Path:
        if self.cache is not None:
            return Path(self.cache)
        return (default_root() if self.root is None else Path(self.root)) / "SubCora"


def find_piece(data: Data, recipe: SubCoraRecipe, rng: np.random.Generator) -> tuple[Index, Index]:
    """Nodes of one piece, ascending, and the split of each."""
    N, edges, label = data.num_nodes, data.edge_index.numpy(), data.y.numpy()
    require(recipe.drawn <= N, "drawn", f"be at most the {N} nodes there are", recipe.drawn)
    adjacency = adjacency_matrix(edges, N)
    once = edges[:, edges[0] < edges[1]]
    for _ in range(0, recipe.max_draws, BATCH):
        for train in _training_sets(once, label, N, recipe, rng):
            piece = _complete(adjacency, train, recipe, rng)
            if piece is not None:
                return piece
    raise InputError(
        f"max_draws must be large enough to find a piece, got {recipe.max_draws} (in draws of {BATCH}) under {recipe}."
    )


def _training_sets(edges: Index, label: Index, N: int, recipe: SubCoraRecipe, rng: np.random.Generator) -> list[Index]:
    """Components that satisfy the recipe among :data:`BATCH` draws, searched as one block-diagonal graph."""
    order = np.argpartition(rng.random((BATCH, N), dtype=np.float32), recipe.drawn - 1, axis=1)
    kept = np.zeros((BATCH, N), dtype=bool)
    np.put_along_axis(kept, order[:, : recipe.drawn], True, axis=1)
    draw, edge = np.nonzero(kept[:, edges[0]] & kept[:, edges[1]])
    offset = draw * N
    blocks = np.stack([offset + edges[0, edge], offset + edges[1, edge]])
    _, component = connected_components(adjacency_matrix(blocks, BATCH * N), directed=False)
    size = np.bincount(component)
    wanted = (size >= recipe.min_train) & (size <= recipe.max_train)
    node = np.flatnonzero(wanted[component] & kept.ravel())
    sets = []
    for c in np.unique(component[node]):
        train = node[component[node] == c] % N
        counts = np.bincount(label[train], minlength=label.max() + 1)
        if counts.min() > 0 and counts.std() <= recipe.max_class_std:
            sets.append(train)
    return sets


def _complete(
    adjacency: csr_matrix, train: Index, recipe: SubCoraRecipe, rng: np.random.Generator
) -> tuple[Index, Index] | None:
    """Add validation and test nodes from the 2-hop pool; ``None`` where it is too small for one test node."""
    reached = np.zeros(adjacency.shape[0])
    reached[train] = 1
    reached = reached + adjacency @ (reached + adjacency @ reached)
    reached[train] = 0
    pool = rng.permutation(np.flatnonzero(reached))
    chosen = pool[: recipe.clients - len(train)]
    if len(chosen) <= len(train):
        return None
    split = np.repeat([Split.TRAIN, Split.VAL, Split.TEST], [len(train), len(train), len(chosen) - len(train)])
    nodes = np.concatenate([train, chosen])
    order = np.argsort(nodes)
    return nodes[order], split[order]


def _client_graph(data: Data, nodes: Index, split: Index) -> ClientGraph:
    part = data.subgraph(torch.from_numpy(nodes))
    return ClientGraph.from_edges(
        x=part.x,
        y=part.y,
        client=torch.arange(len(nodes)),
        split=torch.from_numpy(split.astype(np.int8)),
        shared=torch.ones(len(nodes), dtype=torch.bool),
        edge_index=part.edge_index,
        num_classes=int(data.y.max()) + 1,
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _load(file: Path, key: dict[str, Any], N: int) -> tuple[Index, Index] | None:
    """The stored piece, or ``None`` where the file is absent, broken, of another key or of other than N nodes."""
    try:
        stored = json.loads(file.read_text())
        nodes, split = stored["nodes"], stored["split"]
        intact = stored["key"] == key and stored["digest"] == _digest([nodes, split])
        rising = all(a < b for a, b in zip([-1, *nodes], [*nodes, N], strict=True)) and len(nodes) == len(split)
        known = all(type(one) is int for one in nodes) and all(part in (0, 1, 2) for part in split)
        intact = intact and rising and known
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return (np.array(nodes), np.array(split)) if intact else None


def _store(file: Path, key: dict[str, Any], piece: tuple[Index, Index]) -> None:
    """Write whole or not at all."""
    nodes, split = piece[0].tolist(), piece[1].tolist()
    content = {"key": key, "nodes": nodes, "split": split, "digest": _digest([nodes, split])}
    with whole_file(file) as scratch:
        scratch.write_text(json.dumps(content))
