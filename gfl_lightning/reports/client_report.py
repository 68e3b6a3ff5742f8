"""How good a model is at each client: accuracy, F1, AUROC and calibration, by torchmetrics."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor
from torchmetrics.functional.classification import (
    multiclass_accuracy,
    multiclass_auroc,
    multiclass_calibration_error,
    multiclass_confusion_matrix,
    multiclass_f1_score,
)

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.names import Names
from gfl_lightning.reports.figures import confusion_matrix
from gfl_lightning.reports.predictions import write_table
from gfl_lightning.whole_files import whole_file

BINS = 15


def scores(probability: Tensor, label: Tensor) -> dict[str, float]:
    """Metrics of class probabilities ``[n, c]``; nan where they are undefined.

    ``balanced_accuracy`` and ``f1`` are means over the classes that occur, ``auroc`` over those that occur with others:
    one class against the rest. ``calibration_error`` is the expected one, in 15 bins of the largest probability.
    """
    c = probability.shape[1]
    if not len(label):
        return dict.fromkeys(("accuracy", "balanced_accuracy", "f1", "auroc", "calibration_error"), math.nan)
    found = {
        "accuracy": multiclass_accuracy(probability, label, c, "micro"),
        "balanced_accuracy": multiclass_accuracy(probability, label, c, None)[label.unique()].mean(),
        "f1": multiclass_f1_score(probability, label, c, "macro"),
        "auroc": _auroc(probability, label),
        "calibration_error": multiclass_calibration_error(probability, label, c, BINS),
    }
    return {name: float(value) for name, value in found.items()}


def client_scores(graph: ClientGraph, names: Names, probability: Tensor, part: Split = Split.TEST) -> pd.DataFrame:
    """The metrics of each client that has samples in a split, and how many it has there and for training."""
    rows = graph.mask(part).nonzero().flatten()
    order = rows[graph.client[rows].argsort(stable=True)]
    clients, counts = torch.unique_consecutive(graph.client[order], return_counts=True)
    trained = graph.counts(graph.mask(Split.TRAIN)).tolist()
    table = []
    for client, own in zip(clients.tolist(), order.split(counts.tolist()), strict=True):
        known = {"client": names.clients[client], "samples": len(own), "training_samples": trained[client]}
        table.append(known | scores(probability[own], graph.y[own]))
    columns = ["client", "samples", "training_samples", *scores(probability[:0], graph.y[:0])]
    return pd.DataFrame(table, columns=columns)


def write_report(folder: Path, graph: ClientGraph, names: Names, probability: Tensor) -> dict[str, float]:
    """Write ``clients.csv`` and ``confusion_matrix.png`` of the test samples; returns the metrics of all of them."""
    rows = graph.mask(Split.TEST)
    label, p = graph.y[rows], probability[rows]
    write_table(client_scores(graph, names, probability), folder / "clients.csv")
    counts = multiclass_confusion_matrix(p.argmax(1), label, graph.num_classes)
    with whole_file(folder / "confusion_matrix.png") as scratch:
        confusion_matrix(counts, [str(name) for name in names.classes]).savefig(scratch)
    return scores(p, label)


def _auroc(probability: Tensor, label: Tensor) -> Tensor:
    present = label.unique()
    if len(present) < 2:
        return torch.tensor(math.nan)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No (positive|negative) samples in targets")
        each = multiclass_auroc(probability, label, probability.shape[1], None)
    return each[present].mean()
