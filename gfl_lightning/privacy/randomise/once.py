"""Every client replaces its record by a randomised one, before anything else happens: ε is paid once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gfl_lightning.checks import require, require_choice
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.records.records import Census, Records
from gfl_lightning.graphs.records.shared_labels import with_columns, with_shared_labels
from gfl_lightning.privacy.protection import Unit
from gfl_lightning.privacy.randomise.mechanism import FeatureMechanism, LabelMechanism
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit
from gfl_lightning.privacy.randomise.randomised_response import RandomisedResponse

CHUNK_ENTRIES = 2**24
LARGEST_EPSILON = 700.0


@dataclass(frozen=True)
class RandomisedOnce(Records):
    """(x, y) ↦ (x̃, ỹ), each unit's law within e^ε of that of any other data in its place; the rest is post-processing.

    A label is in use where its sample trains or validates. A unit with a label in use spends ``label_share`` of ε on it
    and the rest on its features, of which nothing is released where there is no rest; a unit without one spends all of
    ε on its features. Who that is, the graph and the numbers of samples are public. Samples that are neither shared nor
    in use never leave their client: they keep their features, on the scale of the mechanism, and their label, which
    is for the experimenter's test alone.

    The unit ``client`` is all samples of a client together: they divide ε among them, or share one draw of their mean
    where they are ``pooled``. The unit ``sample`` is each by itself.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> graph = DNC(num_clients=50, num_features=8).graph
    >>> RandomisedOnce(epsilon=4.0).of(graph, np.random.default_rng(0)).loss.flip
    0.0...

    Args:
        epsilon: ε; infinite means that records are only brought on the scale of the mechanisms, without any promise.
        features: the mechanism of features.
        labels: the mechanism of labels.
        label_share: share of ε that goes into the label, where there is one in use.
        unit: whose data are protected: those of a ``client``, or each ``sample``.
        pooled: whether the samples of a client are replaced by one draw of their mean; for the unit ``client``.
        share_labels: scale of the randomised labels as shared features (see `SharedLabels`); 0 means that none are.
    """

    epsilon: float = 8.0
    features: FeatureMechanism = PrivUnit(dimensions=128)  # noqa: RUF009  # frozen
    labels: LabelMechanism = RandomisedResponse()  # noqa: RUF009
    label_share: float = 1.0
    unit: Unit = "client"
    pooled: bool = False
    share_labels: float = 2.0

    by_site: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self.epsilon > 0, "epsilon", "be positive", self.epsilon)
        kept = self.epsilon <= LARGEST_EPSILON or math.isinf(self.epsilon)
        rule = (
            f"be at most {LARGEST_EPSILON:g}, beyond which chances are smaller than numbers, or infinite for no promise"
        )
        require(kept, "epsilon", rule, self.epsilon)
        for name, kind in (("features", FeatureMechanism), ("labels", LabelMechanism)):
            part = getattr(self, name)
            require(isinstance(part, kind), name, f"be a {kind.__name__}, with its class_path and init_args", part)
        require(0 < self.label_share <= 1, "label_share", "lie in (0, 1]", self.label_share)
        require_choice("unit", self.unit, ("client", "sample"))
        require(self.unit == "client" or not self.pooled, "pooled", "be false where the unit is sample", self.pooled)
        require(0 <= self.share_labels < math.inf, "share_labels", "be finite and at least 0", self.share_labels)

    @property
    def delta(self) -> float:  # type: ignore[override]  # follows from the mechanism
        """δ; 0 where the promise is pure."""
        return 0.0 if math.isinf(self.epsilon) else self.features.delta

    def num_features(self, num_features: int, num_classes: int) -> int:
        """Those of the mechanism, and the columns of shared labels."""
        return self.features.width(num_features) + self.label_columns(num_classes)

    def label_columns(self, num_classes: int) -> int:
        """c where labels are shared."""
        return num_classes if self.share_labels else 0

    def at_home(self, graph: ClientGraph) -> ClientGraph:
        """The samples on the scale of the mechanism."""
        x = torch.from_numpy(self.features.expected(graph.x.double().cpu().numpy())).to(graph.x)
        seen = replace(graph, x=x, loss=self.labels.scaled(graph.loss))
        return with_columns(seen, graph.num_classes) if self.share_labels else seen

    def of(self, graph: ClientGraph, source: np.random.Generator) -> ClientGraph:
        """The randomised graph; the draws do not depend on samples that are neither shared nor in use."""
        return randomised(graph, self, source)

    def of_some(self, graph: ClientGraph, source: np.random.Generator, census: Census) -> ClientGraph:
        """The same of some clients; a census that counts fewer labels than one of them has makes no ε larger."""
        return randomised(graph, self, source, replace(census, most=max(census.most, Census.of(graph).most)))


def randomised(
    graph: ClientGraph, how: RandomisedOnce, source: np.random.Generator, census: Census | None = None
) -> ClientGraph:
    """The graph of randomised records, which may be shown to anybody but for the labels and features of test samples.

    >>> from gfl_lightning.graphs.datasets.karate import KarateClub
    >>> graph = randomised(KarateClub().graph, RandomisedOnce(epsilon=2.0), np.random.default_rng(0))
    >>> graph.num_clients
    34
    """
    census = census or Census.of(graph)
    how.labels.check(graph.loss)
    require(
        not graph.is_weighted, "weights of samples", "all be 1 where labels are randomised, which they tell", "others"
    )
    used = graph.mask(Split.TRAIN) | graph.mask(Split.VAL)
    x = _features(graph, how, used, source)
    y, epsilon = _labels(graph, how, used, source, census.most)
    loss = how.labels.corrected(how.labels.scaled(graph.loss), graph.num_classes, epsilon)
    seen = replace(graph, x=x.to(graph.x), y=y.to(graph.y), loss=loss)
    if not how.share_labels:
        return seen

    def columns(label: Tensor) -> Tensor:
        return torch.from_numpy(how.labels.shown(label.cpu().numpy(), graph.num_classes, loss, epsilon))

    return with_shared_labels(seen, columns, how.share_labels, census)


def what_is_released(graph: ClientGraph) -> tuple[Tensor, ...]:
    """What randomised records are made of, in double precision, and whose they are: what their draws hide."""
    used = graph.mask(Split.TRAIN) | graph.mask(Split.VAL)
    told = graph.shared | used
    return graph.x[told].double(), graph.y[used].double(), graph.client[told], used[told]


def _features(graph: ClientGraph, how: RandomisedOnce, used: Tensor, source: np.random.Generator) -> Tensor:
    """x̃ ``[samples, width]``; samples that never leave their client are only brought on its scale."""
    released, client, x = graph.shared | used, graph.client, graph.x.double()
    rest = 1.0 if math.isinf(how.epsilon) else 1 - how.label_share
    of_client = torch.where(graph.counts(used) > 0, rest, 1.0)
    kept = x.new_zeros(len(x), how.features.width(x.shape[1]))
    kept[~released] = torch.from_numpy(how.features.expected(x[~released].cpu().numpy())).to(x)
    if how.pooled:
        mean = x.new_zeros(graph.num_clients, x.shape[1]).index_add_(0, client[released], x[released])
        mean /= graph.counts(released)[:, None]
        drawn = _draws(mean, of_client, torch.ones_like(of_client), how, source)
        return torch.where(released[:, None], drawn[client], kept)
    if how.unit == "sample":
        share, among = torch.where(used, rest, 1.0), torch.ones(len(x), device=x.device)
    else:
        share, among = of_client[client], graph.counts(released)[client]
    kept[released] = _draws(x[released], share[released], among[released], how, source)
    return kept


def _draws(x: Tensor, share: Tensor, among: Tensor, how: RandomisedOnce, source: np.random.Generator) -> Tensor:
    """x̃ of records ``[n, d]`` that spend a share of ε ``[n]``, each among so many ``[n]``: equal ones together."""
    found = x.new_zeros(len(x), how.features.width(x.shape[1]))
    for part, records in torch.unique(torch.stack([share.double(), among.double()]), dim=1).T.tolist():
        group = ((share == part) & (among == records)).nonzero().flatten()
        epsilon = how.epsilon * part if part else 0.0
        for rows in group.split(max(1, CHUNK_ENTRIES // x.shape[1])):
            drawn = how.features.draw(x[rows].cpu().numpy(), epsilon, source, int(records))
            found[rows] = torch.from_numpy(drawn).to(found)
    return found


def _labels(
    graph: ClientGraph, how: RandomisedOnce, used: Tensor, source: np.random.Generator, most: int
) -> tuple[Tensor, float]:
    """ỹ ``[samples]`` where labels are in use, the labels themselves elsewhere, and the ε of each."""
    y, rows, owner = graph.y.cpu().clone(), used.cpu().nonzero().flatten(), graph.client.cpu()
    epsilon = how.epsilon * how.label_share
    if how.pooled:
        _, first = np.unique(owner[rows].numpy(), return_index=True)
        whose = torch.zeros(graph.num_clients, dtype=torch.int64)
        whose[owner[rows[first]]] = torch.arange(len(first))
        same = bool((y[rows] == y[rows[first]][whose[owner[rows]]]).all())
        require(same, "pooled", "be false where a client has samples of several labels", how.pooled)
        drawn = how.labels.draw(y[rows[first]].numpy(), graph.num_classes, epsilon, source)
        y[rows] = torch.from_numpy(drawn).to(y)[whose[owner[rows]]]
        return y, epsilon
    if how.unit == "client":
        epsilon /= max(1, most)
    y[rows] = torch.from_numpy(how.labels.draw(y[rows].numpy(), graph.num_classes, epsilon, source)).to(y)
    return y, epsilon
