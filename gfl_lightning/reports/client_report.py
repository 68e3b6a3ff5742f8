"""How good a model is at each client, in a table and a figure."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch
from torch import Tensor
from torchmetrics.functional.classification import multiclass_confusion_matrix

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.names import Names
from gfl_lightning.reports.figures import confusion_matrix, predicted_against_true
from gfl_lightning.reports.predictions import write_table
from gfl_lightning.reports.scores import OF_CLASSES, OF_NUMBERS, scores
from gfl_lightning.whole_files import whole_file


def client_scores(graph: ClientGraph, names: Names, prediction: Tensor, part: Split = Split.TEST) -> pd.DataFrame:
    """The scores of each client that has samples in a split, and how many it has there and for training."""
    rows = graph.mask(part).nonzero().flatten()
    order = rows[graph.client[rows].argsort(stable=True)]
    clients, counts = torch.unique_consecutive(graph.client[order], return_counts=True)
    trained = graph.counts(graph.mask(Split.TRAIN)).tolist()
    table = []
    for client, own in zip(clients.tolist(), order.split(counts.tolist()), strict=True):
        known = {"client": names.clients[client], "samples": len(own), "training_samples": trained[client]}
        table.append(known | scores(graph, prediction, own))
    columns = ["client", "samples", "training_samples", *(OF_NUMBERS if graph.loss.of_numbers else OF_CLASSES)]
    return pd.DataFrame(table, columns=columns)


def write_report(folder: Path, graph: ClientGraph, names: Names, prediction: Tensor) -> dict[str, float]:
    """Write ``clients.csv`` and a figure of the test samples; returns the scores of all of them.

    The figure is ``confusion_matrix.png``, or ``predicted_against_true.png`` where labels are numbers.
    """
    rows = graph.mask(Split.TEST)
    label, found = graph.y[rows], prediction[rows]
    write_table(client_scores(graph, names, prediction), folder / "clients.csv")
    if graph.loss.of_numbers:
        name, figure = "predicted_against_true", predicted_against_true(label, found[:, 0])
    else:
        counts = multiclass_confusion_matrix(found.argmax(1), label, graph.num_classes)
        name, figure = "confusion_matrix", confusion_matrix(counts, [str(name) for name in names.classes])
    with whole_file(folder / f"{name}.png") as scratch:
        figure.savefig(scratch)
    return scores(graph, prediction, rows)
