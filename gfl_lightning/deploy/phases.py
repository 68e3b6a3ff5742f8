"""The phases of a deployment in their order, and which messages pass in each."""

from __future__ import annotations

import torch

from gfl_lightning.deploy.contents import Kinds, message_kinds
from gfl_lightning.deploy.evaluation import COLUMNS, Evaluation
from gfl_lightning.deploy.rules import Contents, Field
from gfl_lightning.engine.evaluation import SPLITS
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.protocol.messages import (
    FactorAggregate,
    FactorModelUpload,
    FactorUpload,
    JacobianAggregate,
    JacobianUpload,
    Message,
    ModelBroadcast,
    ModelUpload,
    RepresentationAggregate,
    RepresentationUpload,
)
from gfl_lightning.models.model import Model

COLUMNS_PHASE, SUMS, SQUARES, BEGIN, SHARE, TRAIN, FINISH, REFUSED = (
    "columns",
    "sums",
    "squares",
    "begin",
    "share",
    "train",
    "finish",
    "refused",
)
BEFORE_TRAINING = (COLUMNS_PHASE, SUMS, SQUARES, BEGIN)
JOINING = 120.0  # seconds that a site has at least to start and to read its table
EVALUATION: Contents = {"sums": Field(((len(SPLITS), COLUMNS),), torch.float64)}
DOWN: dict[str, tuple[type[Message], ...]] = {
    SHARE: (ModelBroadcast,),
    TRAIN: (ModelBroadcast, RepresentationAggregate, JacobianAggregate, FactorAggregate),
    FINISH: (ModelBroadcast, RepresentationAggregate),
}
UP: dict[str, tuple[type[Message], ...]] = {
    SHARE: (RepresentationUpload, JacobianUpload, FactorUpload),
    TRAIN: (ModelUpload, FactorModelUpload),
    FINISH: (),
}
SLACK = 2**22


def kinds_down(phase: str, model: Model, protocol: ProtocolName) -> Kinds:
    """What the server may send in a phase once the model's sizes are agreed."""
    known = message_kinds(model, protocol)
    return {kind: known[kind] for kind in DOWN.get(phase, ()) if kind in known}


def kinds_up(phase: str, model: Model, protocol: ProtocolName) -> Kinds:
    """What a site may send in a phase once the model's sizes are agreed."""
    known = message_kinds(model, protocol)
    reports = {Evaluation: EVALUATION} if phase in (TRAIN, FINISH) else {}
    return {kind: known[kind] for kind in UP.get(phase, ()) if kind in known} | reports


def most_bytes(model: Model, clients: int) -> int:
    """More than any blob between the server and a site with so many clients takes."""
    c, hops = model.encoder.num_classes, model.aggregator.hops
    each = 4 * (2 * model.num_weights + hops * c * (model.encoder.num_weights + 1) + 64)
    return SLACK + model.num_weights * 8 + 2 * clients * each
