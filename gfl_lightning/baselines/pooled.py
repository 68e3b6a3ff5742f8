"""What one would do with all rows in one place, as no federation has them: scikit-learn's linear models and trees."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from torch import Tensor

from gfl_lightning.engine.newcomers import Newcomers
from gfl_lightning.graphs.arrays import Array
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.poisson import Poisson

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
TREES = ((50, 0.03), (100, 0.05), (200, 0.1))


@dataclass(frozen=True)
class Pooled:
    """A model of all rows; its strength of regularisation, or its size, is picked by the validation rows.

    Args:
        key: its short name.
        title: its name in tables.
        linear: whether it is linear; otherwise trees.
        dummies: whether it has a column for each client.
    """

    key: str
    title: str
    linear: bool
    dummies: bool = False

    def of_newcomers(self, found: Newcomers) -> Tensor:
        """What it predicts of all samples ``[S, c]`` when newcomers had no part in it."""
        labelled = torch.where(found.stay[found.graph.client], found.graph.split, int(Split.NONE))
        return self.prediction(replace(found.graph, split=labelled.to(found.graph.split.dtype)))

    def prediction(self, graph: ClientGraph) -> Tensor:
        """What it predicts of every sample ``[S, c]``; a client without training rows has zeros for dummies."""
        x = self._features(graph)
        train, val = (graph.mask(part).cpu().numpy() for part in (Split.TRAIN, Split.VAL))
        y, weight = graph.y.cpu().numpy(), graph.weight.double().cpu().numpy()
        best, lowest = np.empty(0), np.inf
        for make in self._models(graph):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                fitted = make().fit(x[train], y[train], sample_weight=weight[train])
            found = fitted.predict(x)[:, None] if graph.loss.of_numbers else _all_classes(fitted, x, graph.num_classes)
            loss = _loss(graph, found, val)
            if loss < lowest or not len(best):
                best, lowest = found, loss
        return torch.from_numpy(best)

    def _features(self, graph: ClientGraph) -> Any:
        """x, or x and a sparse column for each client, of which there may be thousands."""
        x: Array = graph.x.double().cpu().numpy()
        if not self.dummies:
            return x
        trained = np.isin(np.arange(graph.num_clients), graph.training_clients.cpu().numpy())
        client = graph.client.cpu().numpy()
        row = np.flatnonzero(trained[client])
        columns = sparse.csr_array((np.ones(len(row)), (row, client[row])), shape=(len(client), graph.num_clients))
        return sparse.hstack([sparse.csr_array(x), columns], format="csr")

    def _models(self, graph: ClientGraph) -> list[Callable[[], Any]]:
        """Candidates from strong to weak regularisation."""
        numbers, counts = graph.loss.of_numbers, isinstance(graph.loss, Poisson)
        if not self.linear:
            kind = HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier
            fixed: dict[str, Any] = {"max_leaf_nodes": 8, "early_stopping": False, "random_state": 0}
            fixed |= {"loss": "poisson"} if counts else {}
            return [lambda n=n, lr=lr: kind(max_iter=n, learning_rate=lr, **fixed) for n, lr in TREES]  # type: ignore[misc]
        if counts:
            return [lambda C=C: PoissonRegressor(alpha=1e-3 / C, max_iter=1000) for C in STRENGTHS]  # type: ignore[misc]
        if numbers:
            return [lambda C=C: Ridge(alpha=1 / C, tol=1e-10) for C in STRENGTHS]  # type: ignore[misc]
        return [lambda C=C: LogisticRegression(C=C, max_iter=1000) for C in STRENGTHS]  # type: ignore[misc]


POOLED = (
    Pooled("pooled_linear", "pooled linear model", linear=True),
    Pooled("pooled_linear_clients", "pooled linear model, client dummies", linear=True, dummies=True),
    Pooled("pooled_trees", "pooled boosted trees", linear=False),
)


def _all_classes(fitted: Any, x: Any, c: int) -> Array:
    """Probabilities with a column for every class, also one that was not seen."""
    found = np.zeros((x.shape[0], c))
    found[:, fitted.classes_] = fitted.predict_proba(x)
    return found


def _loss(graph: ClientGraph, found: Array, rows: Array) -> float:
    """Log loss of probabilities, half the deviance of counts, or squared error."""
    y, predicted = graph.y.cpu().numpy()[rows], found[rows]
    if not graph.loss.of_numbers:
        return float(-np.log(np.maximum(predicted[np.arange(len(y)), y], 1e-15)).mean())
    if isinstance(graph.loss, Poisson):
        rate = np.maximum(predicted[:, 0], 1e-12)
        return float((rate - y * np.log(rate)).mean())
    return float(np.square(predicted[:, 0] - y).mean())
