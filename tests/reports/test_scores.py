"""Scores of numbers and the baseline against definitions written out; intervals against the coverage they promise."""

from __future__ import annotations

import math

import pytest
import torch
from graph_builders import random_clients, with_numbers
from scipy.stats import spearmanr

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.reports.conformal import half_width, interval
from gfl_lightning.reports.scores import OF_CLASSES, OF_NUMBERS, baseline, number_scores, scores


def test_scores_of_numbers_are_what_they_are_called() -> None:
    draw = torch.Generator().manual_seed(0)
    y = torch.randn(50, generator=draw, dtype=torch.float64)
    predicted = y + torch.randn(50, generator=draw, dtype=torch.float64)
    found = number_scores(predicted, y)
    error = predicted - y
    assert found["rmse"] == pytest.approx(math.sqrt(float((error**2).mean())))
    assert found["mae"] == pytest.approx(float(error.abs().mean()))
    assert found["r2"] == pytest.approx(1 - float((error**2).sum() / ((y - y.mean()) ** 2).sum()))
    assert found["spearman"] == pytest.approx(spearmanr(predicted, y).statistic)


def test_scores_that_are_undefined_are_no_numbers() -> None:
    one = number_scores(torch.tensor([1.0]), torch.tensor([2.0]))
    assert one["rmse"] == one["mae"] == 1
    assert math.isnan(one["r2"])
    assert math.isnan(number_scores(torch.ones(3), torch.arange(3.0))["spearman"])
    nothing = number_scores(torch.empty(0), torch.empty(0))
    assert list(nothing) == list(OF_NUMBERS)
    assert all(math.isnan(value) for value in nothing.values())


def test_the_baseline_knows_the_training_labels_and_nothing_else() -> None:
    graph = random_clients("sc")
    test = graph.mask(Split.TEST)
    trained = graph.y[graph.mask(Split.TRAIN)].tolist()
    share = [trained.count(code) / len(trained) for code in range(3)]
    found = scores(graph, baseline(graph), test)
    assert list(found) == list(OF_CLASSES)
    majority = share.index(max(share))
    assert found["accuracy"] == pytest.approx(float((graph.y[test] == majority).double().mean()))
    surprise = [-math.log(share[y]) for y in graph.y[test].tolist()]
    assert found["log_loss"] == pytest.approx(sum(surprise) / len(surprise))
    assert found["auroc"] == pytest.approx(0.5)
    numbers = with_numbers(graph, SquaredError())
    mean = numbers.y[graph.mask(Split.TRAIN)].mean()
    expected = float((numbers.y[test] - mean).square().mean().sqrt())
    assert scores(numbers, baseline(numbers), test)["rmse"] == pytest.approx(expected)


def numbers(n: int, draw: torch.Generator, split: torch.Tensor) -> ClientGraph:
    client = torch.arange(n)
    return ClientGraph.from_edges(
        x=torch.randn(n, 2, generator=draw),
        y=torch.randn(n, generator=draw, dtype=torch.float64).exp(),
        client=client,
        split=split,
        shared=client >= 0,
        edge_index=torch.stack([client[:-1], client[1:]]),
        num_classes=1,
        loss=SquaredError(),
    )


def test_intervals_hold_as_often_as_they_say() -> None:
    """Over many draws of 39 validation samples, a new sample lies within with probability 0.9 exactly: 36 of 40."""
    draw, inside = torch.Generator().manual_seed(1), []
    split = torch.cat([torch.full((39,), int(Split.VAL)), torch.full((41,), int(Split.TEST))])
    for _ in range(300):
        graph = numbers(80, draw, split)
        predicted = graph.x[:, :1].double()
        low, high = interval(graph.loss, predicted[:, 0], half_width(graph, predicted))  # type: ignore[arg-type]
        test = graph.mask(Split.TEST)
        inside.append(((graph.y >= low) & (graph.y <= high))[test].double().mean())
    assert float(torch.stack(inside).mean()) == pytest.approx(0.9, abs=0.012)


def test_few_validation_samples_promise_nothing_and_counts_are_not_negative() -> None:
    split = torch.cat([torch.full((8,), int(Split.VAL)), torch.full((2,), int(Split.TEST))])
    graph = numbers(10, torch.Generator().manual_seed(0), split)
    assert half_width(graph, torch.zeros(10, 1)) == math.inf
    assert math.isfinite(half_width(graph, torch.zeros(10, 1), level=0.8))
    low, high = interval(Poisson(), torch.tensor([4.0]), 3.0)
    assert (float(low), float(high)) == (0.0, 10.0)
    with pytest.raises(InputError, match="level must lie between 0 and 1, got 1"):
        half_width(graph, torch.zeros(10, 1), level=1)
