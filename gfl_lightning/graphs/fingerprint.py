"""Which data a model was trained on: a digest of a client graph."""

from __future__ import annotations

import hashlib
from dataclasses import fields

from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph


def fingerprint(graph: ClientGraph) -> str:
    """SHA-256 over every column and edge of a graph, their types and shapes.

    >>> from gfl_lightning.graphs.datasets.karate import KarateClub
    >>> fingerprint(KarateClub().graph) == fingerprint(KarateClub().graph) != fingerprint(KarateClub(1).graph)
    True
    """
    digest = hashlib.sha256()
    for field in fields(graph):
        column = getattr(graph, field.name)
        if isinstance(column, Tensor):
            digest.update(f"{field.name} {column.dtype} {tuple(column.shape)}\n".encode())
            digest.update(column.detach().cpu().contiguous().numpy().tobytes())
        else:
            digest.update(f"{field.name} {column!r}\n".encode())
    return digest.hexdigest()
