"""Predictions as a table: whose sample, which, the predicted label and the probability of each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.numbers import NumberLoss
from gfl_lightning.graphs.names import Name, Names
from gfl_lightning.reports.conformal import interval
from gfl_lightning.whole_files import whole_file

PARTS = ("", "train", "val", "test")
ENDINGS = (".csv", ".parquet")


def prediction_table(
    graph: ClientGraph, names: Names, prediction: Tensor, half_width: float | None = None, split_is_known: bool = True
) -> pd.DataFrame:
    """A row for each sample from class probabilities ``[S, c]``, in the user's own names.

    Where labels are numbers ``[S, 1]``, the predicted one with its interval, if the ``half_width`` of it is known.
    Where some labels are known, ``true`` and ``split`` tell them and what their samples were for, unless nobody knows.
    """
    columns = {
        "client": _named(names.clients, graph.client),
        "sample": pd.Series(list(names.samples)),
    }
    if isinstance(graph.loss, NumberLoss):
        found = _numbers(graph.loss, prediction[:, 0].double().cpu(), half_width)
        return pd.DataFrame(columns | found | _known(graph, names, split_is_known))
    columns["predicted"] = _named(names.classes, prediction.argmax(1))
    p = prediction.double().cpu().numpy()
    columns |= _known(graph, names, split_is_known)
    return pd.DataFrame(columns | {f"p_{name}": p[:, code] for code, name in enumerate(names.classes)})


def _numbers(loss: NumberLoss, predicted: Tensor, half_width: float | None) -> dict[str, pd.Series]:
    """The predicted number, and the ends of its interval."""
    found = {"predicted": pd.Series(predicted.numpy())}
    if half_width is None:
        return found
    low, high = interval(loss, predicted, half_width)
    return found | {"low": pd.Series(low.numpy()), "high": pd.Series(high.numpy())}


def _known(graph: ClientGraph, names: Names, split_is_known: bool) -> dict[str, pd.Series]:
    """The true label and the split of samples that have them; nothing where none has."""
    known = graph.split != int(Split.NONE)
    if not bool(known.any()):
        return {}
    label = torch.where(known, graph.y, 0)
    true = pd.Series(label.cpu().numpy()) if graph.loss.of_numbers else _named(names.classes, label)
    told = {"true": true.where(known.cpu().numpy())}
    return told | ({"split": _named(PARTS, graph.split.long() + 1)} if split_is_known else {})


def write_table(table: pd.DataFrame, file: Path) -> None:
    """Write a CSV or Parquet file, by its ending, whole or not at all."""
    require_ending(file)
    with whole_file(file) as scratch:
        if file.suffix == ".parquet":
            table.to_parquet(scratch, index=False)
        else:
            table.map(_harmless).rename(columns=_harmless).to_csv(scratch, index=False, float_format="%.6f")


def _harmless(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe before it."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def require_ending(file: Path) -> None:
    """Refuse files that are neither CSV nor Parquet."""
    require(file.suffix in ENDINGS, "output", "end in .csv or .parquet", str(file))


def _named(names: Sequence[Name], code: Tensor) -> pd.Series:
    """Names by number, in their own type."""
    return pd.Series(list(names)).take(code.cpu().numpy()).reset_index(drop=True)
