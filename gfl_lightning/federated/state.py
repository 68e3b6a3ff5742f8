"""What a federation is between two rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from gfl_lightning.engine.engine import EngineState
from gfl_lightning.federated.exchange.exchange import Exchange
from gfl_lightning.federated.server.optimizer import ServerState
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True, eq=False)
class FederationState(EngineState):
    """The server's state after ``round`` rounds.

    Args:
        round: rounds done.
        weights: W̄.
        uploaded_in: round of each client's last upload of a representation ``[N]``; −1 where there was none.
        enrolled_in: round of each client's first upload ``[N]``; −1 where there was none.
        history: W̄ of the earlier rounds that some client's last upload comes from.
        server: the server optimizer's memory, by name.
        exchange: representations at W̄, as computed by the exchange; derived from the rest, so it need not be saved.
    """

    uploaded_in: Tensor
    enrolled_in: Tensor
    history: dict[int, Weights] = field(default_factory=dict)
    server: ServerState = field(default_factory=dict)
    exchange: Exchange | None = field(default=None, repr=False)
