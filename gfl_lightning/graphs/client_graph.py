"""The one data type of all tasks: a flat table of samples and the graph of the clients that own them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

from gfl_lightning.checks import require


class Split(IntEnum):
    """What a sample is for; ``NONE`` has no label that may be used, but it may still be shared."""

    NONE = -1
    TRAIN = 0
    VAL = 1
    TEST = 2


@dataclass(frozen=True, eq=False, repr=False)
class ClientGraph:
    """N clients on an undirected graph G, each the owner of at least one sample.

    DNC is the case of one sample per client. In SNC and SC clients own several, not necessarily equally many.

    Args:
        x: features ``[samples, d]``, floating point and finite.
        y: labels ``[samples]`` in ``0..num_classes-1``; ``-1`` (unknown) only where ``split`` is ``NONE``.
        client: owner of each sample ``[samples]``; the clients are ``0..N-1`` and each owns a sample.
        split: :class:`Split` of each sample ``[samples]``.
        shared: whether the sample enters its client's representation ĥ ``[samples]``; each client shares one.
        edge_index: both directions of every edge ``[2, edges]``, no self-loop, no duplicate.
        num_classes: number of classes c.
        edge_weight: positive weight per column of ``edge_index``, equal in both directions; ``None`` means 1.
        weight: positive weight of each sample's loss ``[samples]``; left out, it is 1.
    """

    x: Tensor
    y: Tensor
    client: Tensor
    split: Tensor
    shared: Tensor
    edge_index: Tensor
    num_classes: int
    edge_weight: Tensor | None = None
    weight: Tensor = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        if self.weight is None:
            object.__setattr__(self, "weight", torch.ones_like(self.x[:, :1]).flatten())  # type: ignore[unreachable]
        _check_samples(self)
        _check_edges(self)

    @classmethod
    def from_edges(
        cls,
        *,
        x: Tensor,
        y: Tensor,
        client: Tensor,
        split: Tensor,
        shared: Tensor,
        edge_index: Tensor,
        num_classes: int,
        edge_weight: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> ClientGraph:
        """Build from any edge list: self-loops go, directions are completed, repeated edges become one.

        An edge listed several times, in either direction, gets the mean of its weights.
        """
        num_clients = int(client.max()) + 1 if client.numel() else 0
        require(num_clients <= len(client), "client", f"lie in 0..{len(client) - 1}", num_clients - 1)
        if edge_weight is not None:
            require(
                edge_weight.shape == edge_index.shape[1:], "edge_weight", "have one entry per edge", _shape(edge_weight)
            )
        require(
            edge_index.ndim == 2 and edge_index.shape[0] == 2,
            "edge_index",
            "be [2, edges]",
            _shape(edge_index),
        )
        _check_edge_range(edge_index, num_clients)
        edge_index, edge_weight = remove_self_loops(edge_index, edge_weight)
        ascending = edge_index.sort(dim=0).values
        edge_index, edge_weight = coalesce(ascending, edge_weight, num_clients, reduce="mean")
        edge_index, edge_weight = to_undirected(edge_index, edge_weight, num_clients)
        columns = (x, y, client, split, shared, edge_index, num_classes, edge_weight)
        return cls(*columns) if weight is None else cls(*columns, weight)

    @classmethod
    def from_data(cls, data: Data) -> ClientGraph:
        """Read a PyG ``Data``: one node per client, or any graph written by :meth:`to_data`.

        ``train_mask``, ``val_mask`` and ``test_mask`` give the split; where ``client`` and ``shared`` are absent
        every node is a client with one shared sample.
        """
        for name in ("x", "y", "edge_index"):
            require(data.get(name) is not None, f"data.{name}", "be present", None)
        samples = data.x.shape[0]
        masks = {
            Split.TRAIN: data.get("train_mask"),
            Split.VAL: data.get("val_mask"),
            Split.TEST: data.get("test_mask"),
        }
        present = [mask for mask in masks.values() if mask is not None]
        require(bool(present), "data", "have a train_mask, val_mask or test_mask", data)
        for mask in present:
            fits = mask.dtype == torch.bool and mask.shape == (samples,)
            require(fits, "masks", f"be boolean with one entry per sample ({samples})", (mask.dtype, _shape(mask)))
        overlap = int((torch.stack(present).long().sum(0) > 1).sum())
        require(overlap == 0, "train_mask, val_mask and test_mask", "not overlap", f"{overlap} samples in several")
        split = torch.full((samples,), int(Split.NONE), dtype=torch.int8, device=data.x.device)
        for part, mask in masks.items():
            if mask is not None:
                split[mask] = int(part)
        client, shared = data.get("client"), data.get("shared")
        num_classes = data.get("num_classes")
        return cls.from_edges(
            x=data.x,
            y=data.y,
            client=torch.arange(samples, device=data.x.device) if client is None else client,
            split=split,
            shared=torch.ones(samples, dtype=torch.bool, device=data.x.device) if shared is None else shared,
            edge_index=data.edge_index,
            num_classes=int(data.y.max()) + 1 if num_classes is None else num_classes,
            edge_weight=data.get("edge_weight"),
            weight=data.get("sample_weight"),
        )

    def to_data(self) -> Data:
        """Write a PyG ``Data`` whose nodes are the clients and whose sample columns stand beside them."""
        data = Data(x=self.x, y=self.y, edge_index=self.edge_index, client=self.client, shared=self.shared)
        data.num_nodes = self.num_clients
        data.num_classes = self.num_classes
        if self.edge_weight is not None:
            data.edge_weight = self.edge_weight
        if self.is_weighted:
            data.sample_weight = self.weight
        data.train_mask, data.val_mask, data.test_mask = (
            self.mask(part) for part in (Split.TRAIN, Split.VAL, Split.TEST)
        )
        return data

    def to(self, target: torch.device | torch.dtype | str) -> ClientGraph:
        """Move to a device, or convert features and weights to a floating-point type."""
        if isinstance(target, torch.dtype):
            edge_weight = None if self.edge_weight is None else self.edge_weight.to(target)
            return replace(self, x=self.x.to(target), edge_weight=edge_weight, weight=self.weight.to(target))
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: dict[str, Any] = {k: v.to(target) for k, v in columns.items() if isinstance(v, Tensor)}
        return replace(self, **moved)

    @cached_property
    def num_clients(self) -> int:
        """N."""
        return int(self.client.max()) + 1

    @property
    def num_samples(self) -> int:
        """Samples of all clients together."""
        return self.x.shape[0]

    @property
    def num_features(self) -> int:
        """Dimension d of a sample."""
        return self.x.shape[1]

    @property
    def num_edges(self) -> int:
        """Undirected edges."""
        return self.edge_index.shape[1] // 2

    @cached_property
    def training_clients(self) -> Tensor:
        """The clients that own a training sample, ascending."""
        return torch.unique(self.client[self.mask(Split.TRAIN)])

    @cached_property
    def untrained_classes(self) -> Tensor:
        """The classes without a training sample, ascending."""
        counts = torch.bincount(self.y[self.mask(Split.TRAIN)], minlength=self.num_classes)
        return (counts == 0).nonzero().flatten()

    @cached_property
    def is_weighted(self) -> bool:
        """Whether some sample's loss has a weight other than 1."""
        return not bool((self.weight == 1).all())

    def losses(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Weighted cross-entropy of some samples, from their logits ``[n, c]``; ``rows`` are their numbers or a mask."""
        loss = F.cross_entropy(logits, self.y[rows], reduction="none")
        return loss * self.weight[rows] if self.is_weighted else loss

    def mask(self, part: Split) -> Tensor:
        """Which samples belong to a split ``[samples]``."""
        return self.split == int(part)

    def counts(self, among: Tensor | None = None) -> Tensor:
        """Samples per client ``[N]``, of all samples or of those in a mask ``among``."""
        owners = self.client if among is None else self.client[among]
        return torch.bincount(owners, minlength=self.num_clients)

    def __repr__(self) -> str:
        per_client = self.counts()
        low, high = int(per_client.min()), int(per_client.max())
        parts = ", ".join(f"{part.name.lower()} {int(self.mask(part).sum())}" for part in list(Split)[1:])
        return (
            f"ClientGraph({self.num_clients} clients, {self.num_edges} {'weighted ' * (self.edge_weight is not None)}"
            f"edges, {self.num_samples} samples ({low if low == high else f'{low} to {high}'} per client), "
            f"{self.num_features} features, {self.num_classes} classes; {parts}; "
            f"{len(self.training_clients)} clients train)"
        )


def _shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)


def _check_samples(graph: ClientGraph) -> None:
    x, y, client, split = graph.x, graph.y, graph.client, graph.split
    require(
        x.ndim == 2 and x.is_floating_point(),
        "x",
        "be a floating-point matrix [samples, d]",
        (x.dtype, _shape(x)),
    )
    require(x.shape[0] > 0 and x.shape[1] > 0, "x", "have at least one sample and one feature", _shape(x))
    for name in ("y", "client", "split", "shared"):
        column = getattr(graph, name)
        require(column.shape == (x.shape[0],), name, f"have one entry per sample ({x.shape[0]})", _shape(column))
        kind = torch.bool if name == "shared" else torch.int64
        integral = not column.is_floating_point() and column.dtype != torch.bool
        require(column.dtype == kind or (name == "split" and integral), name, f"be of type {kind}", column.dtype)
    bad = (~torch.isfinite(x)).nonzero()
    require(
        not len(bad),
        "x",
        "be finite",
        f"{len(bad)} entries that are not, the first at {bad[0].tolist() if len(bad) else None}",
    )
    require(int(client.min()) >= 0, "client", "be at least 0", int(client.min()))
    owned = graph.counts()
    require(
        bool((owned > 0).all()),
        "client",
        "give every client a sample",
        f"none for client {int(owned.argmin())}",
    )
    sharing = graph.counts(graph.shared)
    require(
        bool((sharing > 0).all()),
        "shared",
        "give every client a shared sample",
        f"none for client {int(sharing.argmin())}",
    )
    known = torch.tensor([int(part) for part in Split], device=split.device)
    require(
        bool(torch.isin(split, known).all()),
        "split",
        "hold Split values -1, 0, 1, 2",
        torch.unique(split).tolist(),
    )
    require(graph.num_classes >= 2, "num_classes", "be at least 2", graph.num_classes)
    lowest = torch.where(split == int(Split.NONE), -1, 0)
    wrong = (y < lowest) | (y >= graph.num_classes)
    require(
        not bool(wrong.any()),
        "y",
        f"lie in 0..{graph.num_classes - 1} (-1 only where split is NONE)",
        torch.unique(y[wrong]).tolist(),
    )
    weight = graph.weight
    fits = weight.shape == y.shape and weight.is_floating_point()
    require(fits, "weight", f"be floating point with one entry per sample ({len(y)})", (weight.dtype, _shape(weight)))
    bad = ~(torch.isfinite(weight) & (weight > 0))
    require(not bool(bad.any()), "weight", "be positive and finite", weight[bad][:3].tolist())


def _check_edge_range(edge_index: Tensor, num_clients: int) -> None:
    if edge_index.numel():
        low, high = int(edge_index.min()), int(edge_index.max())
        require(
            low >= 0 and high < num_clients,
            "edge_index",
            f"name clients in 0..{num_clients - 1}",
            (low, high),
        )


def _check_edges(graph: ClientGraph) -> None:
    edge_index, weight, N = graph.edge_index, graph.edge_weight, graph.num_clients
    require(
        edge_index.ndim == 2 and edge_index.shape[0] == 2 and edge_index.dtype == torch.int64,
        "edge_index",
        "be an int64 tensor [2, edges]",
        (edge_index.dtype, _shape(edge_index)),
    )
    _check_edge_range(edge_index, N)
    source, target = edge_index
    loops = int((source == target).sum())
    require(loops == 0, "edge_index", "have no self-loops (from_edges removes them)", f"{loops} self-loops")
    forward, order = torch.sort(source * N + target)
    backward, back_order = torch.sort(target * N + source)
    repeated = int((forward[1:] == forward[:-1]).sum())
    require(repeated == 0, "edge_index", "have no repeated edges (from_edges merges them)", f"{repeated} repeated")
    require(
        torch.equal(forward, backward),
        "edge_index",
        "hold both directions of every edge (from_edges adds them)",
        f"{edge_index.shape[1]} directed edges, some without their reverse",
    )
    if weight is not None:
        require(
            weight.shape == source.shape and weight.is_floating_point(),
            "edge_weight",
            f"be floating point with one entry per edge ({len(source)})",
            (weight.dtype, _shape(weight)),
        )
        bad = ~(torch.isfinite(weight) & (weight > 0))
        require(not bool(bad.any()), "edge_weight", "be positive and finite", weight[bad][:3].tolist())
        require(
            torch.equal(weight[order], weight[back_order]),
            "edge_weight",
            "be equal in both directions of an edge",
            "weights that differ",
        )
