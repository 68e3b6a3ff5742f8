"""For how long uploads are kept, and who receives them: release after broadcast, and the paper's two servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gfl_lightning.checks import require, require_choice
from gfl_lightning.deploy.aggregation import PlainAggregation
from gfl_lightning.federated.protocol.choice import ProtocolName

Topology = Literal["one_server", "two_servers"]
TOPOLOGIES = ("one_server", "two_servers")


def require_topology(
    topology: Topology, release: bool, masked: bool, protocol: ProtocolName, shares_jacobians: bool
) -> None:
    """Refuse what excludes each other."""
    require_choice("topology", topology, TOPOLOGIES)
    require(type(release) is bool, "release", "be true or false", release)
    if topology == "two_servers":
        require(protocol == "jacobian", "protocol", "be jacobian with two servers, of which one forms models", protocol)
        require(not masked, "topology", "be one_server where sums are masked, as it then reads no upload", topology)
        require(shares_jacobians, "topology", "be one_server where no Jacobians are shared", topology)
    kept = not release or masked or protocol == "jacobian"
    require(kept, "protocol", "be jacobian where uploads are released, as Gram's server needs old ones", protocol)


@dataclass(eq=False)
class Forgetting(PlainAggregation):
    """One server that drops every upload as soon as the aggregates are sent.

    A client that does not share then contributes nothing, where it would else be represented by its last upload. A
    checkpoint holds no upload either: a run that is resumed shares anew.

    Args:
        server: does the sums.
    """

    def released(self) -> None:
        """Keep nothing of what was shared."""
        self.server.forget()

    def state(self) -> dict[str, Any]:
        """The plain state without uploads."""
        return {name: value for name, value in super().state().items() if name != "uploads"}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what :meth:`state` returned."""
        super().load({**state, "uploads": self.server.state()["uploads"]})
