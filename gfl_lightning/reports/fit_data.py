"""What a fit was trained on, in facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components

from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.names import Names
from gfl_lightning.reports.numerals import numeral

MOST = 12  # classes or features that are listed


def data_facts(graph: ClientGraph, names: Names, missing: Mapping[str, int]) -> dict[str, Any]:
    """Clients, rows, edges and pieces of the graph, labels, missing values."""
    A = adjacency_matrix(graph.edge_index.cpu().numpy(), graph.num_clients)
    count, member = connected_components(A, directed=False)
    known = (graph.split != int(Split.NONE)).cpu()
    owned = np.sort(graph.counts().cpu().numpy())
    degree = np.diff(A.indptr)
    parts = ", ".join(f"{part.name.lower()} {int(graph.mask(part).sum())}" for part in list(Split)[1:])
    facts: dict[str, Any] = {
        "clients": f"{graph.num_clients}, {len(graph.training_clients)} of them with training rows",
        "rows": f"{graph.num_samples}: {parts}, not used or without a label {int((~known).sum())}",
        "rows of a client": _range(owned),
        "edges": f"{graph.num_edges}; neighbours of a client: {_range(np.sort(degree))}",
        "components": f"{count}, {int((np.bincount(member) == 1).sum())} of them a single client",
        "features": f"{graph.num_features} columns after encoding",
    }
    if graph.loss.of_numbers:
        y = graph.y[known.to(graph.y.device)].double()
        middle = ", ".join(numeral(float(torch.quantile(_few(y), q))) for q in (0.25, 0.5, 0.75)) if len(y) else ""
        facts["labels"] = (
            f"mean {numeral(float(y.mean()))}, deviation {numeral(float(y.std()))}, quartiles {middle}, "
            f"from {numeral(float(y.min()))} to {numeral(float(y.max()))}"
        )
    else:
        facts["balance"] = _balance(graph, names)
    return facts | {"missing values": _missing(missing)}


def _few(y: torch.Tensor) -> torch.Tensor:
    """Every so many of sorted numbers, as quantiles of millions are refused."""
    return y.sort().values[:: max(1, len(y) // 1_000_000)]


def _range(ascending: np.ndarray[Any, Any]) -> str:
    return f"{ascending[0]} to {ascending[-1]}, {np.median(ascending):g} in the median"


def _balance(graph: ClientGraph, names: Names) -> str:
    known = graph.split != int(Split.NONE)
    shares = torch.bincount(graph.y[known].cpu(), minlength=graph.num_classes) / max(1, int(known.sum()))
    largest = shares.argsort(descending=True, stable=True).tolist()
    told = [f"{names.classes[code]}: {100 * float(shares[code]):.1f} %" for code in largest[:MOST]]
    return ", ".join(told) + (f", and {len(largest) - MOST} more" if len(largest) > MOST else "")


def _missing(missing: Mapping[str, int]) -> str:
    most = sorted(missing.items(), key=lambda one: -one[1])
    told = ", ".join(f"{name}: {count}" for name, count in most[:MOST])
    return (told or "none") + (f", and {len(most) - MOST} more features" if len(most) > MOST else "")
