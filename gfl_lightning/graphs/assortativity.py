"""Whether edges carry signal at all: are neighbours more alike than clients under shuffled edges?

It looks at the training samples of all clients in one place, which this program has and a federation does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.arrays import Array
from gfl_lightning.graphs.client_graph import ClientGraph, Split

SHUFFLES = 199
LEVEL = 0.05
FEWEST_EDGES = 10
RIDGE = 1e-3
FEATURES = 1000


@dataclass(frozen=True)
class Alike:
    """Moran's I = (Σ_e w_e ⟨v_a, v_b⟩ / Σ_e w_e) / (Σ_k ‖v_k‖² / K) of centred values v, beside that of shuffled edges.

    >>> str(Alike(0.5, -0.01, 0.1, 0.005))
    '0.50 (shuffled edges −0.01 ± 0.10)'

    Args:
        value: I.
        mean: under shuffled edges.
        deviation: under shuffled edges.
        p: share of shuffles that are at least as alike, the data themselves being one of them.
    """

    value: float
    mean: float
    deviation: float
    p: float

    @property
    def is_signal(self) -> bool:
        """Whether so much likeness is rare under shuffled edges."""
        return self.p <= LEVEL

    def __str__(self) -> str:
        text = f"{self.value:.2f} (shuffled edges {self.mean:.2f} ± {self.deviation:.2f})"
        return text.replace("-", "−")


@dataclass(frozen=True)
class Assortativity:
    """Likeness of neighbours in their labels, and in what the features of their own rows leave unexplained.

    >>> from gfl_lightning.graphs.datasets.sc import SC
    >>> found = assortativity(SC(num_clients=40, degree=8, lam=2.5).graph)
    >>> found.labels.is_signal, found.sentence.split(":")[0]
    (True, 'the edges carry signal')

    Args:
        labels: of the mean label of each training client; ``None`` where too few edges join two of them.
        residuals: of the mean residual of a ridge regression on the features; ``None`` too where these are too many.
    """

    labels: Alike | None
    residuals: Alike | None

    @property
    def sentence(self) -> str:
        """What it means."""
        if self.labels is None:
            return f"fewer than {FEWEST_EDGES} edges join clients with training rows: too few to tell whether they help"
        if self.residuals is None:
            sure = "the edges carry signal" if self.labels.is_signal else "the edges carry no signal that shows"
            return f"{sure}: neighbours' labels are alike by {self.labels}"
        both = f"neighbours' labels are alike by {self.labels}, beyond their features by {self.residuals}"
        if self.residuals.is_signal:
            return f"the edges carry signal: {both}"
        if self.labels.is_signal:
            return f"the edges say little that features do not: {both}"
        return f"the edges carry no signal that shows, plain federated averaging may do as well: {both}"


def assortativity(graph: ClientGraph, seed: int = 0) -> Assortativity:
    """Measure the training samples of a graph."""
    rows = graph.mask(Split.TRAIN).nonzero().flatten()
    target = graph.loss.targets(graph.y[rows], graph.num_classes, torch.float64)
    A = _between(graph)
    if A.nnz < 2 * FEWEST_EDGES:
        return Assortativity(None, None)
    draw = np.random.default_rng(seed)
    labels = _alike(A, _client_means(graph, rows, target), draw)
    if graph.num_features > FEATURES:
        return Assortativity(labels, None)
    residual = target - _ridge(graph.x[rows].double(), target)
    return Assortativity(labels, _alike(A, _client_means(graph, rows, residual), draw))


def _between(graph: ClientGraph) -> csr_matrix:
    """The edges between training clients, numbered as those."""
    weight = None if graph.edge_weight is None else graph.edge_weight.double().cpu().numpy()
    A = adjacency_matrix(graph.edge_index.cpu().numpy(), graph.num_clients, weight)
    trains = graph.training_clients.cpu().numpy()
    return A[trains][:, trains]


def _client_means(graph: ClientGraph, rows: Tensor, value: Tensor) -> Array:
    """Mean over each training client's rows, centred over clients ``[K, c]``."""
    _, place = graph.client[rows].unique(return_inverse=True)
    count = torch.bincount(place).double()
    mean = value.new_zeros(len(count), value.shape[1]).index_add_(0, place, value) / count[:, None]
    return (mean - mean.mean(0)).cpu().numpy()


def _ridge(x: Tensor, y: Tensor) -> Tensor:
    """Fitted values of y ``[n, c]`` on features and a constant."""
    X = torch.cat([x, x.new_ones(len(x), 1)], 1)
    penalty = RIDGE * len(x) * torch.eye(X.shape[1], dtype=X.dtype, device=X.device)
    return X @ torch.linalg.solve(X.T @ X + penalty, X.T @ y)


def _alike(A: csr_matrix, V: Array, draw: np.random.Generator) -> Alike:
    spread = float((V**2).sum() / len(V))
    if spread < 1e-18:
        return Alike(0.0, 0.0, 0.0, 1.0)

    def moran(values: Array) -> float:
        return float((values * (A @ values)).sum() / A.sum() / spread)

    value = moran(V)
    shuffled = np.array([moran(V[draw.permutation(len(V))]) for _ in range(SHUFFLES)])
    p = (1 + int((shuffled >= value).sum())) / (1 + SHUFFLES)
    return Alike(value, float(shuffled.mean()), float(shuffled.std()), p)
