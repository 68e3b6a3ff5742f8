"""Bytes per round, up and down, by kind of message: for the printed protocol and for the one in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from gfl_lightning.federated.personal.level_strength import NUMBERS_SENT
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.models.model import Model


@dataclass(frozen=True)
class Traffic:
    """Bytes by kind of message; read-only."""

    up: Mapping[str, int]
    down: Mapping[str, int]

    @property
    def total_up(self) -> int:
        """Bytes from clients to server."""
        return sum(self.up.values())

    @property
    def total_down(self) -> int:
        """Bytes from server to clients."""
        return sum(self.down.values())


@dataclass(frozen=True)
class Attendance:
    """Who took part in a round: numbers of clients.

    Args:
        trained: trained.
        trained_single: of those, send one direction and have done so.
        shared: uploaded a representation.
        shared_single: of those, send one direction (see `one_direction`).
        enrolled: of those, uploaded for the first time.
        reached: trained or shared, so received W̄.
        stale: whether some upload that stands is of an earlier round.
    """

    trained: int
    trained_single: int
    shared: int
    shared_single: int
    enrolled: int
    reached: int
    stale: bool


def one_direction(graph: ClientGraph) -> Tensor:
    """Which clients send their Jacobian as one direction under the Gram protocol ``[N]``.

    Those that share one sample and train on no other.
    """
    train = graph.mask(Split.TRAIN)
    elsewhere = graph.counts(train & ~graph.shared)
    return (graph.counts(graph.shared) == 1) & (elsewhere == 0)


@dataclass(frozen=True)
class TrafficMeter:
    """Sizes of the messages of a federation.

    Args:
        model: what is trained.
        compensated: whether Jacobians travel; the exact estimator is counted as what it stands in for.
        itemsize: bytes of a number.
        estimating: clients that send what the strength of their levels is estimated from.
        anchoring: whether they are told a common level beside it.
    """

    model: Model
    compensated: bool
    itemsize: int
    estimating: int = 0
    anchoring: bool = False

    @property
    def isolated(self) -> bool:
        """Whether Ψ_G is the identity, so that only models travel."""
        return self.model.aggregator.isolates

    def measure(self, who: Attendance, protocol: ProtocolName) -> Traffic:
        """Bytes of one round under a protocol."""
        model, encoder = self.model.num_weights, self.model.encoder.num_weights
        c, hops = self.model.encoder.num_classes, self.model.aggregator.hops
        up = {"ModelUpload": who.trained * model}
        down = {"ModelBroadcast": who.reached * model}
        if not self.isolated:
            up["RepresentationUpload"] = who.shared * c
            down["RepresentationAggregate"] = who.trained * hops * c
        if self.compensated and protocol == "jacobian":
            up["JacobianUpload"] = who.shared * c * encoder
            down["JacobianAggregate"] = who.trained * hops * c * encoder
        if self.estimating:
            up["LevelSums"] = self.estimating * NUMBERS_SENT
            down["LevelStrength"] = self.estimating * (1 + self.anchoring)
        up, down = _scaled(up, self.itemsize), _scaled(down, self.itemsize)
        if self.compensated and protocol == "gram":
            self._add_factors(up, down, who)
        return Traffic(MappingProxyType(up), MappingProxyType(down))

    def _add_factors(self, up: dict[str, int], down: dict[str, int], who: Attendance) -> None:
        structure, size = self.model.encoder.structure, self.itemsize
        if structure is None:
            mean = size * self.model.encoder.num_features
            up["FactorUpload"], down["FactorAggregate"] = who.shared * mean, who.trained * mean
            return
        d, m, c = structure.num_features, structure.width, structure.num_classes
        several = who.shared - who.shared_single
        pattern = who.shared_single * -(-m // 8)
        up["FactorUpload"] = size * (who.shared * m + who.enrolled * d + several * m * d) + pattern
        depth = c if who.stale else 1
        train_several = who.trained - who.trained_single
        numbers = who.trained * m + depth * (who.trained_single * m + train_several * m * d)
        down["FactorAggregate"] = size * numbers
        up["FactorModelUpload"] = size * who.trained_single * (c * m + m + c)
        up["ModelUpload"] = size * train_several * m * (d + c)


def _scaled(numbers: dict[str, int], itemsize: int) -> dict[str, int]:
    return {kind: itemsize * count for kind, count in numbers.items()}
