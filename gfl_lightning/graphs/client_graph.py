"""The one data type of all tasks: a flat table of samples and the graph of the clients that own them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.graphs import validation
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.loss import Loss

if TYPE_CHECKING:  # seconds of imports, which a graph that is built from its columns does without
    from torch_geometric.data import Data

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

COLUMNS = (
    *("x", "y", "edge_index", "edge_weight", "client", "shared", "sample_weight"),
    *("train_mask", "val_mask", "test_mask"),
)


class Split(IntEnum):
    """What a sample is for; ``NONE`` has no label that may be used, but it may still be shared.

    >>> [part.name for part in Split]
    ['NONE', 'TRAIN', 'VAL', 'TEST']
    """

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
        y: labels ``[samples]``: classes in ``0..num_classes-1``, or numbers (``float64``) where the loss is one of
            numbers; ``-1`` or nan (unknown) only where ``split`` is ``NONE``.
        client: owner of each sample ``[samples]``; the clients are ``0..N-1`` and each owns a sample.
        split: :class:`Split` of each sample ``[samples]``.
        shared: whether the sample enters its client's representation ĥ ``[samples]``; each client shares one.
        edge_index: both directions of every edge ``[2, edges]``, no self-loop, no duplicate.
        num_classes: number of classes c, or 1 where labels are numbers.
        edge_weight: positive weight per column of ``edge_index``, equal in both directions; ``None`` means 1.
        weight: positive weight of each sample's loss ``[samples]``, or one number for all; left out, it is 1.
        loss: what is lost on a label.

    >>> path = torch.tensor([[0, 1], [1, 2]])
    >>> split = torch.tensor([Split.TRAIN, Split.TRAIN, Split.TEST])
    >>> ClientGraph.from_edges(
    ...     x=torch.eye(3), y=torch.tensor([0, 1, 1]), client=torch.arange(3), split=split,
    ...     shared=torch.ones(3, dtype=torch.bool), edge_index=path, num_classes=2,
    ... )  # doctest: +NORMALIZE_WHITESPACE
    ClientGraph(3 clients, 2 edges, 3 samples (1 per client), 3 features, 2 classes; train 2, val 0, test 1;
    2 clients train)
    """

    x: Tensor
    y: Tensor
    client: Tensor
    split: Tensor
    shared: Tensor
    edge_index: Tensor
    num_classes: int
    edge_weight: Tensor | None = None
    weight: Tensor = field(default_factory=partial(torch.ones, ()))
    loss: Loss = CrossEntropy()  # noqa: RUF009  # frozen

    def __post_init__(self) -> None:
        for name in ("x", "y", "client", "split", "shared", "edge_index", "weight"):
            validation.check_tensor(name, getattr(self, name))
        if self.edge_weight is not None:
            validation.check_tensor("edge_weight", self.edge_weight)
        validation.check_features(self.x)
        S = self.num_samples
        if self.weight.ndim == 0:
            object.__setattr__(self, "weight", self.weight.to(self.x).repeat(S))
        validation.check_column("y", self.y, S, self.loss.label_type)
        validation.check_column("client", self.client, S, torch.int64)
        validation.check_column("split", self.split, S, *INTEGERS)
        validation.check_column("shared", self.shared, S, torch.bool)
        validation.check_owners(self.client, self.shared)
        validation.check_split(self.split, list(Split))
        self.loss.check(self.y, self.mask(Split.NONE), self.num_classes)
        validation.check_sample_weights(self.weight, S)
        validation.check_edges(self.edge_index, self.edge_weight, self.num_clients)

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
        loss: Loss = CrossEntropy(),  # noqa: B008  # frozen
    ) -> ClientGraph:
        """Build from any edge list: self-loops go, directions are completed, repeated edges become one.

        An edge listed several times, in either direction, gets the mean of its weights.
        """
        from torch_geometric.utils import coalesce, remove_self_loops, to_undirected  # noqa: PLC0415

        for name, column in (("client", client), ("edge_index", edge_index)):
            validation.check_tensor(name, column)
        if edge_weight is not None:
            validation.check_tensor("edge_weight", edge_weight)
        num_clients = validation.count_clients(client)
        validation.check_edge_list(edge_index, edge_weight, num_clients)
        edge_index, edge_weight = remove_self_loops(edge_index.long(), edge_weight)
        ascending = edge_index.sort(dim=0).values
        edge_index, edge_weight = coalesce(ascending, edge_weight, num_clients, reduce="mean")
        edge_index, edge_weight = to_undirected(edge_index, edge_weight, num_clients)
        columns = (x, y, client, split, shared, edge_index, num_classes, edge_weight)
        return cls(*columns, loss=loss) if weight is None else cls(*columns, weight, loss)

    @classmethod
    def from_data(cls, data: Data, loss: Loss = CrossEntropy()) -> ClientGraph:  # noqa: B008  # frozen
        """Read a PyG ``Data``: one node per client, or any graph written by :meth:`to_data`.

        ``train_mask``, ``val_mask`` and ``test_mask`` give the split; where ``client`` and ``shared`` are absent
        every node is a client with one shared sample. ``loss`` says whether labels are classes or numbers.
        """
        for name in ("x", "y", "edge_index"):
            require(data.get(name) is not None, f"data.{name}", "be present", None)
        for name in COLUMNS:
            if data.get(name) is not None:
                validation.check_tensor(name, data.get(name))
        validation.check_features(data.x)
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
            received = (mask.dtype, validation.shape(mask))
            require(fits, "masks", f"be boolean with one entry per sample ({samples})", received)
        overlap = int((torch.stack(present).long().sum(0) > 1).sum())
        require(overlap == 0, "train_mask, val_mask and test_mask", "not overlap", f"{overlap} samples in several")
        split = torch.full((samples,), int(Split.NONE), dtype=torch.int8, device=data.x.device)
        for part, mask in masks.items():
            if mask is not None:
                split[mask] = int(part)
        client, shared = data.get("client"), data.get("shared")
        num_classes = 1 if loss.of_numbers else data.get("num_classes")
        return cls.from_edges(
            x=data.x,
            y=data.y.to(loss.label_type) if loss.of_numbers else data.y,
            client=torch.arange(samples, device=data.x.device) if client is None else client,
            split=split,
            shared=torch.ones(samples, dtype=torch.bool, device=data.x.device) if shared is None else shared,
            edge_index=data.edge_index,
            num_classes=_classes_in(data.y) if num_classes is None else num_classes,
            edge_weight=data.get("edge_weight"),
            weight=data.get("sample_weight"),
            loss=loss,
        )

    def to_data(self) -> Data:
        """Write a PyG ``Data`` whose nodes are the clients and whose sample columns stand beside them."""
        from torch_geometric.data import Data  # noqa: PLC0415

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
        """The classes without a training sample, ascending; none where labels are numbers or random answers."""
        if self.loss.of_numbers or self.loss.randomised:
            return torch.empty(0, dtype=torch.int64)
        counts = torch.bincount(self.y[self.mask(Split.TRAIN)], minlength=self.num_classes)
        return (counts == 0).nonzero().flatten()

    @cached_property
    def is_weighted(self) -> bool:
        """Whether some sample's loss has a weight other than 1."""
        return not bool((self.weight == 1).all())

    def losses(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Weighted loss of some samples from the model's outputs ``[n, c]``; ``rows`` are their numbers or a mask."""
        loss = self.loss.losses(logits, self.y[rows])
        return loss * self.weight[rows] if self.is_weighted else loss

    def without_test(self) -> ClientGraph:
        """The graph as training and model selection need it: no test labels, no test samples that are not shared."""
        test = self.mask(Split.TEST)
        keep = self.shared | ~test
        hidden = {
            "y": torch.where(test, self.loss.unknown, self.y),
            "split": torch.where(test, int(Split.NONE), self.split),
            "weight": torch.where(test, 1.0, self.weight),
        }
        columns = {name: getattr(self, name) for name in ("x", "client", "shared")} | hidden
        return replace(self, **{name: column[keep] for name, column in columns.items()})

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
        labels = "labels that are numbers" if self.loss.of_numbers else f"{self.num_classes} classes"
        parts = ", ".join(f"{part.name.lower()} {int(self.mask(part).sum())}" for part in list(Split)[1:])
        return (
            f"ClientGraph({self.num_clients} clients, {self.num_edges} {'weighted ' * (self.edge_weight is not None)}"
            f"edges, {self.num_samples} samples ({low if low == high else f'{low} to {high}'} per client), "
            f"{self.num_features} features, {labels}; {parts}; "
            f"{len(self.training_clients)} clients train)"
        )


def _classes_in(y: Tensor) -> int:
    """How many classes labels ``[samples]`` tell of."""
    validation.check_column("y", y, len(y) if y.ndim else 0, torch.int64)
    return int(y.max()) + 1
