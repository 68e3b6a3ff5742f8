"""Predictions as a table: whose sample, which, the predicted label and the probability of each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.names import Name, Names
from gfl_lightning.whole_files import whole_file

ENDINGS = (".csv", ".parquet")


def prediction_table(graph: ClientGraph, names: Names, probability: Tensor) -> pd.DataFrame:
    """A row for each sample from class probabilities ``[S, c]``, in the user's own names."""
    columns = {
        "client": _named(names.clients, graph.client),
        "sample": pd.Series(list(names.samples)),
        "predicted": _named(names.classes, probability.argmax(1)),
    }
    p = probability.double().cpu().numpy()
    return pd.DataFrame(columns | {f"p_{name}": p[:, code] for code, name in enumerate(names.classes)})


def write_table(table: pd.DataFrame, file: Path) -> None:
    """Write a CSV or Parquet file, by its ending, whole or not at all."""
    require_ending(file)
    with whole_file(file) as scratch:
        if file.suffix == ".parquet":
            table.to_parquet(scratch, index=False)
        else:
            table.to_csv(scratch, index=False, float_format="%.6f")


def require_ending(file: Path) -> None:
    """Refuse files that are neither CSV nor Parquet."""
    require(file.suffix in ENDINGS, "output", "end in .csv or .parquet", str(file))


def _named(names: Sequence[Name], code: Tensor) -> pd.Series:
    """Names by number, in their own type."""
    return pd.Series(list(names)).take(code.cpu().numpy()).reset_index(drop=True)
