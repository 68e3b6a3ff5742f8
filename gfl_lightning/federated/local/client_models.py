"""The models W_k that the clients of a round hold before the server averages them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.server.weighting import rescaled
from gfl_lightning.federated.state import FederationState
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True, eq=False)
class ClientModels:
    """Models of K clients after their local steps.

    Args:
        clients: the clients that trained and whose update is finite ``[K]``.
        vote: weight of each in the average ``[K]``, summing to 1.
        weights: their W_k by name, stacked ``[K, …]``.
    """

    clients: Tensor
    vote: Tensor
    weights: Weights


def client_models(
    federation: Federation, state: FederationState, lr: float | None = None, steps: int | None = None
) -> ClientModels:
    """The clients' W_k in the round that starts from a state, in K times the memory of W, before any bound on updates.

    ``steps`` stops after some of the I local steps.
    """
    problem = federation.single_models_problem(state, lr)
    stacked = federation.local_path.models(problem if steps is None else replace(problem, steps=steps))
    finite = torch.stack([W.flatten(1).isfinite().all(1) for W in stacked.values()]).all(0)
    kept = {name: W[finite] for name, W in stacked.items()}
    return ClientModels(problem.training.clients[finite], rescaled(problem.vote[finite]), kept)
