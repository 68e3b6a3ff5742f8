"""How good predictions are, by torchmetrics: accuracy, AUROC, log loss of classes, errors of numbers; a baseline."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor
from torchmetrics.functional.classification import (
    multiclass_accuracy,
    multiclass_auroc,
    multiclass_calibration_error,
    multiclass_f1_score,
)
from torchmetrics.functional.regression import (
    mean_absolute_error,
    mean_squared_error,
    r2_score,
    spearman_corrcoef,
)

from gfl_lightning.graphs.client_graph import ClientGraph, Split

BINS = 15
OF_CLASSES = ("accuracy", "balanced_accuracy", "f1", "auroc", "log_loss", "calibration_error")
OF_NUMBERS = ("rmse", "mae", "r2", "spearman")
BETTER_IF_HIGHER = ("accuracy", "balanced_accuracy", "f1", "auroc", "r2", "spearman")


def scores(graph: ClientGraph, prediction: Tensor, rows: Tensor) -> dict[str, float]:
    """Scores of some samples from the predictions of all ``[S, c]``; nan where they are undefined."""
    y, predicted = graph.y[rows].cpu(), prediction[rows].cpu()
    return number_scores(predicted[:, 0], y) if graph.loss.of_numbers else class_scores(predicted, y)


def class_scores(probability: Tensor, label: Tensor) -> dict[str, float]:
    """Scores of class probabilities ``[n, c]``.

    ``balanced_accuracy`` and ``f1`` are means over the classes that occur, ``auroc`` over those that occur with others:
    one class against the rest. ``calibration_error`` is the expected one, in 15 bins of the largest probability.
    """
    c = probability.shape[1]
    if not len(label):
        return dict.fromkeys(OF_CLASSES, math.nan)
    found = {
        "accuracy": multiclass_accuracy(probability, label, c, "micro"),
        "balanced_accuracy": multiclass_accuracy(probability, label, c, None)[label.unique()].mean(),
        "f1": multiclass_f1_score(probability, label, c, "macro"),
        "auroc": _auroc(probability, label),
        "log_loss": -probability.double().gather(1, label[:, None]).clamp_min(1e-15).log().mean(),
        "calibration_error": multiclass_calibration_error(probability, label, c, BINS),
    }
    return {name: float(value) for name, value in found.items()}


def number_scores(predicted: Tensor, y: Tensor) -> dict[str, float]:
    """Scores of predicted numbers ``[n]``; R² and Spearman's rank correlation need two that differ."""
    if not len(y):
        return dict.fromkeys(OF_NUMBERS, math.nan)
    predicted, y = predicted.double(), y.double()
    varies = len(y) > 1 and bool((y != y[0]).any())
    ranked = varies and bool((predicted != predicted[0]).any())
    found = {
        "rmse": mean_squared_error(predicted, y, squared=False),
        "mae": mean_absolute_error(predicted, y),
        "r2": r2_score(predicted, y) if varies else math.nan,
        "spearman": spearman_corrcoef(predicted, y) if ranked else math.nan,
    }
    return {name: float(value) for name, value in found.items()}


def baseline(graph: ClientGraph) -> Tensor:
    """What one would predict of every sample without looking at it ``[S, c]``.

    The shares of the classes among the training samples, the largest of which is the majority; or the mean of their
    numbers.
    """
    y = graph.y[graph.mask(Split.TRAIN)]
    if graph.loss.of_numbers:
        return y.mean().expand(graph.num_samples, 1)
    shares = torch.bincount(y, minlength=graph.num_classes).double() / len(y)
    return shares.expand(graph.num_samples, -1)


def own_level(graph: ClientGraph) -> Tensor:
    """What a client would predict of every sample by its own training labels alone ``[S, c]``.

    The shares of the classes (or the mean) among its training samples, shrunk towards those of all clients as if it had
    one more sample of these; those of all where it has none.
    """
    rows = graph.mask(Split.TRAIN)
    everyone = baseline(graph)[:1].double()
    value = graph.y[rows].double()[:, None]
    if not graph.loss.of_numbers:
        value = torch.nn.functional.one_hot(graph.y[rows], graph.num_classes).double()
    total = value.new_zeros(graph.num_clients, value.shape[1]).index_add_(0, graph.client[rows], value)
    return ((total + everyone) / (graph.counts(rows)[:, None] + 1))[graph.client]


def _auroc(probability: Tensor, label: Tensor) -> Tensor:
    present = label.unique()
    if len(present) < 2:
        return torch.tensor(math.nan)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No (positive|negative) samples in targets")
        each = multiclass_auroc(probability, label, probability.shape[1], None)
    return each[present].mean()
