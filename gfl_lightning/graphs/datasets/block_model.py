"""What DNC, SNC and SC share: the options and the draws of the contextual stochastic block model.

Everything that ``graph_seed`` fixes (graph, classes, split, and the direction u where the recipe fixes it) is
drawn from one stream, everything that ``repetition`` redraws (features, SC labels) from another.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from gfl_lightning.checks import require, require_count, require_room
from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.arrays import Array, Index, Mask
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.balanced_growth import grow_training_set
from gfl_lightning.graphs.datasets.csbm import edge_probabilities, sample_classes, sample_edges

FEWEST = 20


def check_block_model(
    num_clients: int,
    num_features: int,
    degree: float,
    lam: float,
    mu: float,
    graph_seed: int,
    repetition: int,
    samples_per_client: int = 1,
) -> None:
    """Refuse options that the model has no graph or no features for, or no memory."""
    require_count("num_clients", num_clients, 2)
    require_room("num_clients", num_clients, 20 * num_clients)
    require(math.isfinite(degree), "degree", "be finite", degree)
    require_room("degree", degree, 8 * num_clients * degree)
    edge_probabilities(num_clients, degree, lam)
    require_count("num_features", num_features)
    samples = num_clients * samples_per_client
    require_room("samples per client", samples_per_client, 4 * samples)
    require_room("num_features", num_features, 3 * samples * num_features)
    require(mu >= 0, "mu", "be at least 0", mu)
    require(mu < math.inf, "mu", "be finite", mu)
    require_count("graph_seed", graph_seed, 0)
    require_count("repetition", repetition, 0)


def require_a_tenth(num_clients: int) -> None:
    """Refuse so few clients that a tenth of them cannot hold both classes."""
    rule = f"be at least {FEWEST}, for 10 % of them to hold both classes"
    require(num_clients >= FEWEST, "num_clients", rule, num_clients)


def streams(graph_seed: int, repetition: int) -> tuple[np.random.Generator, np.random.Generator]:
    """The generator of what is fixed with the graph, and the one of what a repetition redraws."""
    return np.random.default_rng([graph_seed]), np.random.default_rng([graph_seed, 1, repetition])


def split_graph(num_clients: int, degree: float, lam: float, rng: np.random.Generator) -> tuple[Index, Index, Index]:
    """Classes v ``[N]``, edges ``[2, edges]``, and the split of each client ``[N]``.

    10 % of the clients train, balanced by class and connected; 10 % validate; the rest test.
    """
    v = sample_classes(num_clients, rng)
    edges = sample_edges(v, degree, lam, rng)
    tenth = num_clients // 10
    both_directions = np.concatenate([edges, edges[::-1]], axis=1)
    train = grow_training_set(adjacency_matrix(both_directions, num_clients), v, tenth, rng)
    split = np.full(num_clients, int(Split.TEST))
    split[train] = Split.TRAIN
    rest = np.flatnonzero(split == Split.TEST)
    split[rng.choice(rest, tenth, replace=False)] = Split.VAL
    return v, edges, split


def signed_graph(x: Array, sign: Index, client: Index, split: Index, shared: Mask, edges: Index) -> ClientGraph:
    """The client graph of samples in two classes, given by their sign −1 or +1 ``[samples]``."""
    return ClientGraph.from_edges(
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.from_numpy((sign > 0).astype(np.int64)),
        client=torch.from_numpy(client),
        split=torch.from_numpy(split.astype(np.int8)),
        shared=torch.from_numpy(shared),
        edge_index=torch.from_numpy(edges),
        num_classes=2,
    )
