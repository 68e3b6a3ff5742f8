"""A secret rotation: training goes the same way, and what undoes it."""

from __future__ import annotations

import numpy as np
import torch
from graph_builders import random_clients

from gfl_lightning.attacks.rotation import by_components, by_known_records, by_moments, named_by_truth
from gfl_lightning.attacks.scores import cosine
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.records.rotated import Rotated
from gfl_lightning.models.encoders.mlp import MLP


def test_training_goes_the_same_way_behind_a_rotation() -> None:
    for task in ("dnc", "sc"):
        graph = random_clients(task)
        turned = Rotated(secret=3).of(graph, np.random.default_rng(0))
        Q = torch.linalg.lstsq(graph.x, turned.x).solution.T if len(graph.x) >= graph.num_features else None
        assert Q is not None
        plain, hidden = (Federation(g, MLP((5,)), local=LocalTraining(0.3, 3)) for g in (graph, turned))
        a = plain.start()
        b = hidden.start({"W1": a.weights["W1"] @ Q.T, "W2": a.weights["W2"]})
        for _ in range(5):
            (a, one), (b, other) = plain.round(a), hidden.round(b)
            assert abs(one.metrics["train"].loss - other.metrics["train"].loss) < 1e-9
        torch.testing.assert_close(b.weights["W1"], a.weights["W1"] @ Q.T, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(b.weights["W2"], a.weights["W2"], rtol=1e-7, atol=1e-9)


def rare_words(count: int, d: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    frequency = 0.02 + 0.08 * torch.rand(d, generator=generator)
    return (torch.rand(count, d, generator=generator) < frequency).double()


def rotation(d: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q


def mean_cosine(guess: torch.Tensor, X: torch.Tensor) -> float:
    rows = (X.sum(1) > 0).nonzero().flatten()[:100]
    return sum(cosine(guess[j], X[j]) for j in rows.tolist()) / len(rows)


def test_independent_components_undo_it_where_words_are_independent_and_clients_many() -> None:
    X, Q = rare_words(4000, 12), rotation(12)
    found = by_components(X @ Q.T, 12, torch.Generator().manual_seed(0))
    assert mean_cosine(named_by_truth(found, X), X) > 0.95
    normal = torch.randn(4000, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = by_components(normal @ Q.T, 12, torch.Generator().manual_seed(0))
    assert mean_cosine(named_by_truth(found, normal), normal) < 0.9


def test_known_records_undo_it_on_their_span() -> None:
    X, Q = rare_words(500, 30) + 0.01, rotation(30)
    assert mean_cosine(by_known_records(X @ Q.T, X[:60] @ Q.T, X[:60]), X) > 0.999
    few = mean_cosine(by_known_records(X @ Q.T, X[:5] @ Q.T, X[:5]), X)
    assert 0.1 < few < 0.9


def test_known_marginals_undo_it_where_variances_differ_and_not_where_all_are_alike() -> None:
    d, Q = 6, rotation(6)
    generator = torch.Generator().manual_seed(2)
    skewed = torch.rand(20000, d, generator=generator).double().square() * torch.arange(1, d + 1)
    assert mean_cosine(by_moments(skewed[:10000] @ Q.T, skewed[10000:], d), skewed[:10000]) > 0.95
    alike = torch.randn(20000, d, generator=generator).double()
    assert mean_cosine(by_moments(alike[:10000] @ Q.T, alike[10000:], d), alike[:10000]) < 0.8
