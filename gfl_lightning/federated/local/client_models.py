"""The models W_k that the clients of a round hold before the server averages them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.general import GeneralPath
from gfl_lightning.federated.local.problem import rescaled
from gfl_lightning.federated.state import FederationState
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.protection import Protection


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

    The general path forms them anyway. The others never do; there W_k is the average over client k alone, so that
    all of them cost K passes of one client each.
    """
    problem, path = federation.local_problem(state, lr), federation.local_path
    problem = replace(problem, steps=problem.steps if steps is None else steps)
    if federation.shield is not None:
        problem = replace(federation.shield.with_all_noise(problem, state.round), protection=Protection())
    if isinstance(path, GeneralPath):
        stacked = path.models(problem)
        finite = torch.stack([W.flatten(1).isfinite().all(1) for W in stacked.values()]).all(0)
    else:
        places = torch.arange(len(problem.training), device=problem.vote.device)
        alone = [path(problem.take(place)) for place in places.split(1)]
        stacked = {name: torch.stack([one.average[name] for one in alone]) for name in problem.weights}
        finite = torch.tensor([not one.skipped for one in alone], device=places.device)
    kept = {name: W[finite] for name, W in stacked.items()}
    return ClientModels(problem.training.clients[finite], rescaled(problem.vote[finite]), kept)
