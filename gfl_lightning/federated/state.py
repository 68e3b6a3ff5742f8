"""What a federation is between two rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from gfl_lightning.federated.exchange.exchange import Exchange
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True, eq=False)
class FederationState:
    """The server's state after ``round`` rounds.

    Args:
        round: rounds done.
        weights: W̄.
        uploaded_in: round of each client's last upload of a representation ``[N]``; −1 where there was none.
        enrolled_in: round of each client's first upload ``[N]``; −1 where there was none.
        history: W̄ of the earlier rounds that some client's last upload comes from.
        moments: the server optimizer's memory, by name.
        exchange: representations at W̄, as computed by the exchange; derived from the rest, so it need not be saved.
    """

    round: int
    weights: Weights
    uploaded_in: Tensor
    enrolled_in: Tensor
    history: dict[int, Weights] = field(default_factory=dict)
    moments: dict[str, Weights] = field(default_factory=dict)
    exchange: Exchange | None = field(default=None, repr=False)
