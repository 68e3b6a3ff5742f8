"""The report against definitions written out, and its picture by what it shows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from graph_builders import random_clients
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.names import Names
from gfl_lightning.reports.client_report import client_scores, write_report
from gfl_lightning.reports.figures import confusion_matrix
from gfl_lightning.reports.predictions import prediction_table, write_table
from gfl_lightning.reports.scores import class_scores


def f1(predicted: Tensor, label: Tensor) -> float:
    """Mean over the classes that occur, as truth or prediction, of 2 TP / (2 TP + FP + FN)."""
    found = []
    for code in torch.cat([predicted, label]).unique():
        right = ((predicted == code) & (label == code)).sum()
        found.append(float(2 * right / ((predicted == code).sum() + (label == code).sum())))
    return float(np.mean(found))


def auroc(probability: Tensor, label: Tensor) -> float:
    """Mean over the classes that occur of P(p of a member > p of another), ties counting half."""
    found = []
    for code in label.unique():
        inside, outside = probability[label == code, code], probability[label != code, code]
        above = (inside[:, None] > outside).double() + (inside[:, None] == outside).double() / 2
        found.append(float(above.mean()))
    return float(np.mean(found))


def calibration_error(probability: Tensor, label: Tensor) -> float:
    """Σ_bins share · |confidence − accuracy| over 15 equal bins of the largest probability."""
    confidence, predicted = probability.max(1)
    which = (confidence * 15).ceil().long()
    total = 0.0
    for code in which.unique():
        inside = which == code
        gap = confidence[inside].mean() - predicted[inside].eq(label[inside]).double().mean()
        total += float(inside.double().mean() * gap.abs())
    return total


@pytest.mark.parametrize("c", [2, 3, 5])
def test_scores_are_what_they_are_called(c: int) -> None:
    draw = torch.Generator().manual_seed(c)
    label = torch.randint(c, (80,), generator=draw)
    logits = torch.randn(80, c, generator=draw, dtype=torch.float64)
    probability = torch.softmax(logits + 1.5 * torch.nn.functional.one_hot(label, c), -1)
    predicted, found = probability.argmax(1), class_scores(probability, label)
    recall = [float(predicted[label == code].eq(code).double().mean()) for code in label.unique()]
    assert found["accuracy"] == pytest.approx(float(predicted.eq(label).double().mean()))
    assert found["balanced_accuracy"] == pytest.approx(np.mean(recall))
    assert found["f1"] == pytest.approx(f1(predicted, label))
    assert found["auroc"] == pytest.approx(auroc(probability, label))
    assert found["log_loss"] == pytest.approx(float(torch.nn.functional.nll_loss(probability.log(), label)))
    assert found["calibration_error"] == pytest.approx(calibration_error(probability, label), abs=1e-6)


def test_classes_that_do_not_occur_are_left_out() -> None:
    probability = torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1]])
    found = class_scores(probability, torch.tensor([0, 1, 1]))
    assert found["balanced_accuracy"] == pytest.approx(0.75)
    assert found["f1"] == pytest.approx(2 / 3)
    assert found["auroc"] == pytest.approx(1)
    assert math.isnan(class_scores(probability[:1], torch.tensor([0]))["auroc"])
    assert all(
        math.isnan(value) for value in class_scores(probability[:0], torch.tensor([], dtype=torch.int64)).values()
    )


def test_each_client_is_scored_on_its_own_samples(tmp_path: Path) -> None:
    graph = random_clients("sc", N=14)
    probability = torch.softmax(torch.randn(graph.num_samples, 3, generator=torch.Generator().manual_seed(0)), -1)
    names = Names([f"c{k}" for k in range(14)], range(graph.num_samples), ["x", "y", "z"])
    found = client_scores(graph, names, probability).set_index("client")
    test = graph.mask(Split.TEST)
    assert len(found) == len(graph.client[test].unique())
    for name, row in found.iterrows():
        own = (graph.client == int(str(name)[1:])) & test
        assert row["samples"] == int(own.sum())
        assert row["accuracy"] == pytest.approx(float(probability[own].argmax(1).eq(graph.y[own]).double().mean()))
    whole = write_report(tmp_path, graph, names, probability)
    assert whole == class_scores(probability[test], graph.y[test])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clients.csv", "confusion_matrix.png"]
    assert pd.read_csv(tmp_path / "clients.csv")["client"].tolist() == found.index.tolist()


def test_predictions_are_in_the_users_own_names(tmp_path: Path) -> None:
    graph = random_clients("sc")
    probability = torch.eye(3)[torch.arange(graph.num_samples) % 3]
    names = Names([f"c{k}" for k in range(10)], [f"s{i}" for i in range(graph.num_samples)], [-1, 0, 7])
    table = prediction_table(graph, names, probability)
    assert table["predicted"].tolist() == [(-1, 0, 7)[i % 3] for i in range(graph.num_samples)]
    assert table["predicted"].dtype == np.int64
    assert table["client"].tolist() == [f"c{k}" for k in graph.client.tolist()]
    assert table.columns.tolist() == ["client", "sample", "predicted", "true", "split", "p_-1", "p_0", "p_7"]
    write_table(table, tmp_path / "p.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "p.parquet"), table, check_dtype=False)
    with pytest.raises(InputError, match=r"output must end in \.csv or \.parquet, got "):
        write_table(table, tmp_path / "p.txt")


def test_the_confusion_matrix_shows_counts_and_names() -> None:
    figure = confusion_matrix(torch.tensor([[8, 2], [0, 0]]), ["ill", "well"])
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["8", "2", "0", "0"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ill", "well"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "true")
    np.testing.assert_allclose(axes.images[0].get_array(), [[0.8, 0.2], [0, 0]])
    assert not confusion_matrix(torch.eye(30, dtype=torch.int64), [str(i) for i in range(30)]).axes[0].texts
    with pytest.raises(InputError, match=r"counts must be \[2, 2\], one row and column per class, got \[3, 3\]"):
        confusion_matrix(torch.eye(3, dtype=torch.int64), ["a", "b"])
