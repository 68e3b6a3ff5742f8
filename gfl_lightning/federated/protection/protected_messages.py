"""Protection as a transformation of one upload: bound its norm, then add noise to every entry.

This is what a client does on its own; the engine draws the sum of what all clients would draw.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from gfl_lightning.checks import InputError, require
from gfl_lightning.federated.protection.clipping import clip_scale
from gfl_lightning.federated.protocol.messages import JacobianUpload, Message, ModelUpload, RepresentationUpload
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism
from gfl_lightning.privacy.protection import Protection


def protected(message: Message, protection: Protection, W: Weights, generator: torch.Generator) -> Message:
    """The upload as it may leave a client that received W̄; an upload that cannot be protected is refused."""
    if protection.is_inert:
        return message
    whole = math.isinf(protection.hidden.clip) and math.isinf(protection.jacobian.clip)
    require(protection.unit == "client" or whole, "unit", "be client where a client's mean is bounded", protection.unit)
    if isinstance(message, RepresentationUpload):
        return replace(message, h=_noisy({"h": message.h}, protection.hidden, generator)["h"])
    if isinstance(message, JacobianUpload):
        return replace(message, jacobian=_noisy(message.jacobian, protection.jacobian, generator))
    if isinstance(message, ModelUpload):
        update = {name: weight - W[name] for name, weight in message.weights.items()}
        noisy = _noisy(update, protection.update, generator)
        return replace(message, weights={name: W[name] + change for name, change in noisy.items()})
    raise InputError(f"protocol must be jacobian where uploads are protected, got a {type(message).__name__}.")


def _noisy(parts: Weights, mechanism: Mechanism, generator: torch.Generator) -> Weights:
    """One upload, all its parts as one vector, bounded and with noise."""
    norm = torch.stack([part.square().sum() for part in parts.values()]).sum().sqrt()
    scale = clip_scale(norm, mechanism.clip) if math.isfinite(mechanism.clip) else torch.ones_like(norm)
    bounded = {name: part * scale for name, part in parts.items()}
    if not mechanism.is_noisy:
        return bounded
    return {
        name: part + mechanism.draw(tuple(part.shape), generator, part.dtype).to(part) for name, part in bounded.items()
    }
