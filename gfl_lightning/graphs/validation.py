"""What the columns and edges of a client graph must satisfy, each refusal in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.checks import require, require_count
from gfl_lightning.sealed_files import is_dense

LARGEST_NORM = 1e18
MOST_CLASSES = 100_000


def check_tensor(name: str, value: Any) -> None:
    """A field is a tensor with memory of its own for each entry, in the usual layout."""
    require(isinstance(value, Tensor), name, "be a tensor", type(value).__name__)
    require(is_dense(value), name, "be a dense tensor", (value.layout, value.dtype))


def check_features(x: Tensor) -> None:
    """X ``[samples, d]`` is a finite floating-point matrix with at least one row and one column."""
    matrix = x.ndim == 2 and x.is_floating_point()
    require(matrix, "x", "be a floating-point matrix [samples, d]", (x.dtype, shape(x)))
    require(x.dtype in (torch.float32, torch.float64), "x", "be of type torch.float32 or torch.float64", x.dtype)
    require(x.shape[0] > 0 and x.shape[1] > 0, "x", "have at least one sample and one feature", shape(x))
    bad = (~torch.isfinite(x)).nonzero()
    place = bad[0].tolist() if len(bad) else None
    require(not len(bad), "x", "be finite", f"{len(bad)} entries that are not, the first at {place}")
    norm = float(torch.linalg.vector_norm(x, dim=1, dtype=torch.float64).max())
    rule = f"have samples of a norm of at most {LARGEST_NORM:g}, whose squares fit 32 bits"
    require(norm <= LARGEST_NORM, "x", rule, norm)


def check_column(name: str, column: Tensor, samples: int, *kinds: torch.dtype) -> None:
    """A column has one entry of the right type per sample."""
    require(column.shape == (samples,), name, f"have one entry per sample ({samples})", shape(column))
    require(column.dtype in kinds, name, f"be of type {kinds[0]}", column.dtype)


def check_owners(client: Tensor, shared: Tensor) -> None:
    """Each of the clients ``0..N-1`` owns a sample and shares one."""
    N = count_clients(client)
    owned = torch.bincount(client, minlength=N)
    lonely = f"none for client {int(owned.argmin())}"
    require(bool((owned > 0).all()), "client", "give every client a sample", lonely)
    sharing = torch.bincount(client[shared], minlength=N)
    silent = f"none for client {int(sharing.argmin())}"
    require(bool((sharing > 0).all()), "shared", "give every client a shared sample", silent)


def count_clients(client: Tensor) -> int:
    """N, where the owners ``[samples]`` may be those of N clients with a sample each; 0 where there is no sample."""
    whole = client.ndim == 1 and client.dtype == torch.int64
    require(whole, "client", "be an int64 vector [samples]", (client.dtype, shape(client)))
    if not len(client):
        return 0
    low, high = int(client.min()), int(client.max())
    require(low >= 0, "client", "be at least 0", low)
    require(high < len(client), "client", f"lie in 0..{len(client) - 1}", high)
    return high + 1


def check_split(split: Tensor, parts: Sequence[int]) -> None:
    """Each sample belongs to one of the parts."""
    known = torch.isin(split, torch.tensor(parts, device=split.device)).all()
    require(bool(known), "split", f"hold Split values {', '.join(map(str, parts))}", torch.unique(split).tolist())


def check_labels(y: Tensor, unused: Tensor, num_classes: int) -> None:
    """Labels are classes; those of ``unused [samples]`` may be −1."""
    require_count("num_classes", num_classes, 2, MOST_CLASSES)
    wrong = (y < torch.where(unused, -1, 0)) | (y >= num_classes)
    rule = f"lie in 0..{num_classes - 1} (-1 only where split is NONE)"
    require(not bool(wrong.any()), "y", rule, torch.unique(y[wrong]).tolist())


def check_sample_weights(weight: Tensor, samples: int) -> None:
    """Weights ``[samples]`` of losses are positive and finite."""
    fits = weight.shape == (samples,) and weight.is_floating_point()
    require(fits, "weight", f"be floating point with one entry per sample ({samples})", (weight.dtype, shape(weight)))
    _check_positive("weight", weight)


def check_edge_list(edge_index: Tensor, edge_weight: Tensor | None, num_clients: int) -> None:
    """Any list of edges ``[2, edges]`` between known clients, in any order, with loops and repeats."""
    whole = edge_index.dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    pairs = edge_index.ndim == 2 and edge_index.shape[0] == 2 and whole
    require(pairs, "edge_index", "be [2, edges] of whole numbers", (edge_index.dtype, shape(edge_index)))
    if edge_weight is not None:
        fits = edge_weight.shape == edge_index.shape[1:]
        require(fits, "edge_weight", "have one entry per edge", shape(edge_weight))
        real = edge_weight.dtype in (torch.float32, torch.float64)
        require(real, "edge_weight", "be of type torch.float32 or torch.float64", edge_weight.dtype)
    _check_ends(edge_index, num_clients)


def check_edges(edge_index: Tensor, edge_weight: Tensor | None, num_clients: int) -> None:
    """Both directions of every edge ``[2, edges]`` once, no loop, with a symmetric weight."""
    pairs = edge_index.ndim == 2 and edge_index.shape[0] == 2 and edge_index.dtype == torch.int64
    require(pairs, "edge_index", "be an int64 tensor [2, edges]", (edge_index.dtype, shape(edge_index)))
    _check_ends(edge_index, num_clients)
    source, target = edge_index
    loops = int((source == target).sum())
    require(loops == 0, "edge_index", "have no self-loops (from_edges removes them)", f"{loops} self-loops")
    forward, order = torch.sort(source * num_clients + target)
    backward, back_order = torch.sort(target * num_clients + source)
    repeated = int((forward[1:] == forward[:-1]).sum())
    require(repeated == 0, "edge_index", "have no repeated edges (from_edges merges them)", f"{repeated} repeated")
    one_way = f"{edge_index.shape[1]} directed edges, some without their reverse"
    both = torch.equal(forward, backward)
    require(both, "edge_index", "hold both directions of every edge (from_edges adds them)", one_way)
    if edge_weight is not None:
        fits = edge_weight.shape == source.shape and edge_weight.is_floating_point()
        rule = f"be floating point with one entry per edge ({len(source)})"
        require(fits, "edge_weight", rule, (edge_weight.dtype, shape(edge_weight)))
        _check_positive("edge_weight", edge_weight)
        symmetric = torch.equal(edge_weight[order], edge_weight[back_order])
        require(symmetric, "edge_weight", "be equal in both directions of an edge", "weights that differ")


def shape(tensor: Tensor) -> list[int]:
    """The shape as a message shows it."""
    return list(tensor.shape)


def _check_ends(edge_index: Tensor, num_clients: int) -> None:
    if edge_index.numel():
        low, high = int(edge_index.min()), int(edge_index.max())
        known = low >= 0 and high < num_clients
        require(known, "edge_index", f"name clients in 0..{num_clients - 1}", (low, high))


def _check_positive(name: str, weight: Tensor) -> None:
    bad = ~(torch.isfinite(weight) & (weight > 0))
    require(not bool(bad.any()), name, "be positive and finite", weight[bad][:3].tolist())
