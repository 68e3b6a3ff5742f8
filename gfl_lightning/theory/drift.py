"""(1/K) Σ_k ‖W_k − W̃‖²: how far local training drives the clients apart before the server averages them."""

from __future__ import annotations

import torch
from torch import Tensor

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.client_models import client_models
from gfl_lightning.federated.state import FederationState
from gfl_lightning.models.encoders.encoder import Weights


def dispersion(weights: Weights, vote: Tensor) -> float:
    """(1/K) Σ_k ‖W_k − W̃‖² with W̃ = Σ_k vote_k W_k, for W_k stacked ``[K, …]`` and ``vote [K]``; nan for K = 0."""
    flat = [stacked.flatten(1).double() for stacked in weights.values()]
    squared = [(W - vote.double() @ W).square().sum(1) for W in flat]
    return float(torch.stack(squared).sum(0).mean())


def client_drift(federation: Federation, state: FederationState, lr: float | None = None) -> float:
    """Dispersion of the client models in the round that starts from a state, before the server's optimizer.

    It repeats the local steps of that round, one client at a time where the path never forms W_k, and holds all W_k.
    """
    models = client_models(federation, state, lr)
    return dispersion(models.weights, models.vote)
