"""What the tensors of each kind of message may be in a federation: names, shapes and types, from the model's sizes."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from gfl_lightning.deploy.rules import Contents, Field
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

Kinds = Mapping[type[Message], Contents]


def message_kinds(model: Model, protocol: ProtocolName, dtype: torch.dtype = torch.float32) -> Kinds:
    """Every kind of message of the protocol with what its tensors may be.

    >>> from gfl_lightning.models.aggregators.appnp import APPNP
    >>> from gfl_lightning.models.encoders.encoder import SizedEncoder
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> message_kinds(Model(SizedEncoder(MLP(), 5, 2), APPNP()), "jacobian")[RepresentationUpload]["h"].shapes
    ((2,),)
    """
    c, learnable, hops = model.encoder.num_classes, model.aggregator.learnable, model.aggregator.hops
    lead = (hops, c) if learnable else (c,)

    def one(*shapes: tuple[int, ...], optional: bool = False, kind: torch.dtype = dtype) -> Field:
        return Field(shapes, kind, optional)

    weights = {f"weights.{name}": one(shape) for name, shape in model.shapes.items()}
    kinds: dict[type[Message], Contents] = {
        ModelBroadcast: weights,
        ModelUpload: weights,
        RepresentationUpload: {"h": one((c,))},
        RepresentationAggregate: {"C": one(lead)},
    }
    if protocol == "jacobian":
        shapes = model.encoder.shapes.items()
        kinds[JacobianUpload] = {f"jacobian.{name}": one((c, *shape)) for name, shape in shapes}
        kinds[JacobianAggregate] = {f"grad_C.{name}": one((*lead, *shape)) for name, shape in shapes}
        return kinds
    structure = model.encoder.structure
    if structure is None:
        d = model.encoder.num_features
        kinds[FactorUpload], kinds[FactorAggregate] = {"activation": one((d,))}, {"A": one((d,))}
        return kinds
    d, m = structure.num_features, structure.width
    kinds[FactorUpload] = {
        "activation": one((m,)),
        "pattern": one((m,), optional=True, kind=torch.bool),
        "direction": one((d,), optional=True),
        "U": one((m, d), optional=True),
    }
    kinds[FactorAggregate] = {
        "A": one((m,)),
        "cross": one((m,), (c, m), optional=True),
        "T": one((m, d), (c, m, d), optional=True),
    }
    kinds[FactorModelUpload] = {"W2": one((c, m)), "delta": one((m,)), "residual": one((c,))}
    return kinds
