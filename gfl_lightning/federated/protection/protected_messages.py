"""Protection as a transformation of one upload: bound its norm, then add noise to every entry.

This is what a client does on its own; the engine draws the sum of what all clients would draw.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.federated.protection.clipping import clip_scale
from gfl_lightning.federated.protocol.messages import JacobianUpload, Message, ModelUpload, RepresentationUpload
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.protection import Protection


def protected(message: Message, protection: Protection, W: Weights, generator: torch.Generator) -> Message:
    """The upload as it may leave a client that received W̄; an upload that cannot be protected is refused."""
    if protection.is_inert:
        return message
    whole = math.isinf(protection.hidden_clip) and math.isinf(protection.jacobian_clip)
    require(protection.unit == "client" or whole, "unit", "be client where a client's mean is bounded", protection.unit)
    if isinstance(message, RepresentationUpload):
        noisy = _noisy({"h": message.h}, protection.hidden_clip, protection.hidden_std, generator)
        return replace(message, h=noisy["h"])
    if isinstance(message, JacobianUpload):
        noisy = _noisy(message.jacobian, protection.jacobian_clip, protection.jacobian_std, generator)
        return replace(message, jacobian=noisy)
    if isinstance(message, ModelUpload):
        update = {name: weight - W[name] for name, weight in message.weights.items()}
        noisy = _noisy(update, protection.update_clip, protection.update_std, generator)
        return replace(message, weights={name: W[name] + change for name, change in noisy.items()})
    raise InputError(f"protocol must be jacobian where uploads are protected, got a {type(message).__name__}.")


def _noisy(parts: dict[str, Tensor], bound: float, std: float, generator: torch.Generator) -> dict[str, Tensor]:
    norm = torch.stack([part.square().sum() for part in parts.values()]).sum().sqrt()
    scale = clip_scale(norm, bound) if math.isfinite(bound) else torch.ones_like(norm)
    return {
        name: part * scale + std * torch.randn(part.shape, generator=generator, dtype=part.dtype).to(part)
        for name, part in parts.items()
    }
