"""What a federation is between two rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.engine.engine import EngineState
from gfl_lightning.federated.exchange.exchange import Exchange
from gfl_lightning.federated.personal.terms import Terms
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
        terms: the clients' personal terms at W̄, derived too: no client tells them to anybody.
    """

    uploaded_in: Tensor
    enrolled_in: Tensor
    history: dict[int, Weights] = field(default_factory=dict)
    server: ServerState = field(default_factory=dict)
    exchange: Exchange | None = field(default=None, repr=False)
    terms: Terms | None = field(default=None, repr=False)


def check_progress(
    progress: Mapping[str, Any], rounds: int, num_clients: int, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Refuse progress that no federation of so many clients and weights of these shapes has after so many rounds."""
    known = ("uploaded_in", "enrolled_in", "history", "server")
    require(set(progress) == set(known), "progress", f"hold {', '.join(known)}", sorted(progress))
    for name in ("uploaded_in", "enrolled_in"):
        column = progress[name]
        fits = isinstance(column, Tensor) and column.dtype == torch.int64 and column.shape == (num_clients,)
        within = fits and bool(((column >= -1) & (column <= rounds)).all())
        require(within, name, f"be a round of −1..{rounds} for each of {num_clients} clients", column)
    history, server = progress["history"], progress["server"]
    require(isinstance(history, dict) and isinstance(server, dict), "history and server", "be by name", progress)
    for number, weights in [*history.items(), *server.items()]:
        found = {name: tuple(weight.shape) for name, weight in weights.items()}
        require(found == shapes, f"weights of {number!r}", f"have the shapes {dict(shapes)}", found)
    missing = set(progress["uploaded_in"].unique().tolist()) - {-1, rounds} - set(history)
    require(not missing or not history, "history", "hold the weights that uploads come from", sorted(missing))
