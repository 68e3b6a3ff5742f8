"""Protection as a transformation of one upload: bound its norm, round it to a lattice, add noise on the lattice.

This is what a client does on its own; the engine draws the sum of what all clients would draw.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.federated.protection.clipping import clip_scale, clipped_rows, scaled_rows
from gfl_lightning.federated.protocol.messages import (
    FactorModelUpload,
    JacobianUpload,
    Message,
    ModelUpload,
    RepresentationUpload,
)
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism
from gfl_lightning.privacy.noise_source import NoiseSource
from gfl_lightning.privacy.protection import Protection


def protected(
    message: Message, protection: Protection, W: Weights, source: NoiseSource, each_bounded: bool = False
) -> Message:
    """The upload as it may leave a client that received W̄; an upload that cannot be protected is refused.

    ``each_bounded`` says that it is a mean of samples that are bounded each, as :func:`sample_means` makes it.
    """
    if protection.is_inert:
        return message
    whole = math.isinf(protection.hidden.clip) and math.isinf(protection.jacobian.clip)
    fits = protection.unit == "client" or whole or each_bounded or isinstance(message, ModelUpload)
    require(fits, "unit", "be client where a client's mean is bounded", protection.unit)
    if isinstance(message, RepresentationUpload):
        return replace(message, h=_noisy({"h": message.h}, protection.hidden, source, W, each_bounded)["h"])
    if isinstance(message, JacobianUpload):
        return replace(message, jacobian=_noisy(message.jacobian, protection.jacobian, source, W, each_bounded))
    if isinstance(message, ModelUpload):
        update = {name: weight - W[name] for name, weight in message.weights.items()}
        noisy = _noisy(update, protection.update, source, W)
        return replace(message, weights={name: W[name] + change for name, change in noisy.items()})
    raise InputError(f"protocol must be jacobian where uploads are protected, got a {type(message).__name__}.")


def sample_means(client: int, h: Tensor, jacobian: Weights | None, protection: Protection) -> list[Message]:
    """ĥ_j and ∇ĥ_j as means of what each sample contributes, ``h [n, c]`` and ``jacobian [n, c, …]``, each bounded.

    The means are in double precision: they must not round by more than the share of one sample.
    """
    hidden = h if math.isinf(protection.hidden.clip) else clipped_rows(h, protection.hidden.clip)
    messages: list[Message] = [RepresentationUpload(client, hidden.double().mean(0))]
    if jacobian is None:
        return messages
    if protection.jacobian.is_bounded:
        squared = torch.stack([part.flatten(1).square().sum(1) for part in jacobian.values()]).sum(0)
        scale = clip_scale(squared.sqrt(), protection.jacobian.clip)
        jacobian = {n: scaled_rows(part.flatten(1), scale).view_as(part) for n, part in jacobian.items()}
    return [*messages, JacobianUpload(client, {name: part.double().mean(0) for name, part in jacobian.items()})]


def is_finite(upload: Message) -> bool:
    """Whether a model upload holds finite numbers only."""
    assert isinstance(upload, (ModelUpload, FactorModelUpload))
    if isinstance(upload, ModelUpload):
        return all(bool(weight.isfinite().all()) for weight in upload.weights.values())
    return all(bool(part.isfinite().all()) for part in (upload.W2, upload.delta, upload.residual))


def null_record(upload: Message, W: Weights) -> ModelUpload:
    """The upload of a client that changes nothing: W̄."""
    assert isinstance(upload, ModelUpload)
    return replace(upload, weights=dict(W))


def _noisy(parts: Weights, mechanism: Mechanism, source: NoiseSource, W: Weights, is_bounded: bool = False) -> Weights:
    """One upload, all its parts as one vector, bounded unless it is so already, and with noise, as precise as W̄."""
    if mechanism.is_bounded and not is_bounded:
        norm = torch.stack([part.square().sum() for part in parts.values()]).sum().sqrt()
        scale = clip_scale(norm, mechanism.clip)
        parts = {name: torch.where(scale > 0, part * scale, 0) for name, part in parts.items()}
    released = {name: mechanism.released(part, source) for name, part in parts.items()}
    return {name: part.to(next(iter(W.values()), part).dtype) for name, part in released.items()}
