"""What a round tells about itself: metrics of the new W̄, who took part, and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.engine.engine import Report
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.protocol.traffic import Attendance, Traffic, TrafficMeter, one_direction
from gfl_lightning.federated.schedule import Schedule
from gfl_lightning.federated.state import FederationState
from gfl_lightning.graphs.client_graph import ClientGraph


@dataclass(frozen=True)
class RoundReport(Report):
    """What happened in a round: metrics of the new W̄ by split, who took part, and bytes.

    ``trained``, ``shared`` and the bytes are of the messages of the round, from the exchange that it started with to
    the models it averaged. ``metrics``, ``oldest_upload`` (the age in rounds of the oldest representation in use) and
    ``never_shared`` (clients without one) are of the exchange at the new W̄. ``skipped`` clients were left out of the
    average because their update was not finite.
    """

    trained: int
    shared: int
    skipped: int
    oldest_upload: int
    never_shared: int
    traffic: Traffic
    printed_traffic: Traffic

    @property
    def scalars(self) -> dict[str, float]:
        """What else is worth logging: who took part, and bytes."""
        return {
            "bytes_up": self.traffic.total_up,
            "bytes_down": self.traffic.total_down,
            "printed_bytes_up": self.printed_traffic.total_up,
            "printed_bytes_down": self.printed_traffic.total_down,
            "clients_trained": self.trained,
            "clients_shared": self.shared,
            "clients_skipped": self.skipped,
            "oldest_upload": self.oldest_upload,
        }


@dataclass(frozen=True, eq=False)
class Reporter:
    """Reports on the rounds of a federation.

    Args:
        graph: the clients.
        schedule: who takes part.
        meter: sizes of messages.
        protocol: the protocol in use.
    """

    graph: ClientGraph
    schedule: Schedule
    meter: TrafficMeter
    protocol: ProtocolName

    def report(
        self,
        before: FederationState,
        after: FederationState,
        trained: Tensor,
        skipped: int,
        metrics: dict[str, Metrics],
    ) -> RoundReport:
        """The report on the round between two states."""
        who = self._attendance(before, trained)
        usual = who is self._usual_attendance
        traffic, printed = self._usual_traffic if usual else self._traffic(who)
        seen = after.uploaded_in >= 0
        full = self.schedule.everyone_shares
        return RoundReport(
            round=after.round,
            metrics=metrics,
            trained=who.trained,
            shared=who.shared,
            skipped=skipped,
            oldest_upload=0 if full else after.round - int(after.uploaded_in[seen].min()),
            never_shared=0 if full else int((~seen).sum()),
            traffic=traffic,
            printed_traffic=printed,
        )

    def _attendance(self, state: FederationState, trained: Tensor) -> Attendance:
        """Who took part in the round that starts from a state."""
        everyone = self.schedule.everyone_shares and len(trained) == len(self.schedule.training)
        if everyone and state.round > 0:
            return self._usual_attendance
        single = self._single
        sharing = state.uploaded_in == state.round
        reached = torch.zeros_like(sharing).index_fill_(0, trained, True)
        if not self.meter.isolated:
            reached |= sharing
        return Attendance(
            trained=len(trained),
            trained_single=int((single & (state.enrolled_in >= 0))[trained].sum()),
            shared=int(sharing.sum()),
            shared_single=int((sharing & single).sum()),
            enrolled=int((single & (state.enrolled_in == state.round)).sum()),
            reached=int(reached.sum()),
            stale=bool(((state.uploaded_in != state.round) & (state.uploaded_in >= 0)).any()),
        )

    @cached_property
    def _usual_attendance(self) -> Attendance:
        """Full participation in any round but the first."""
        N, clients = self.graph.num_clients, self.schedule.training.clients
        return Attendance(
            trained=len(clients),
            trained_single=int(self._single[clients].sum()),
            shared=N,
            shared_single=int(self._single.sum()),
            enrolled=0,
            reached=len(clients) if self.meter.isolated else N,
            stale=False,
        )

    def _traffic(self, who: Attendance) -> tuple[Traffic, Traffic]:
        """Bytes under the protocol in use and under the printed one."""
        return self.meter.measure(who, self.protocol), self.meter.measure(who, "jacobian")

    @cached_property
    def _usual_traffic(self) -> tuple[Traffic, Traffic]:
        return self._traffic(self._usual_attendance)

    @cached_property
    def _single(self) -> Tensor:
        return one_direction(self.graph)
