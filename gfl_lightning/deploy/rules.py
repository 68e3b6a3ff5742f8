"""What the next blob may hold, and how one that holds anything else is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gfl_lightning.checks import InputError
from gfl_lightning.federated.protocol.messages import Message

Shape = tuple[int, ...]


class BlobError(InputError):
    """A blob that may not be taken up; its text says why."""


@dataclass(frozen=True)
class Field:
    """What a tensor of a message may be.

    Args:
        shapes: the shapes that it may have.
        dtype: its type.
        optional: whether it may be absent.
    """

    shapes: tuple[Shape, ...]
    dtype: torch.dtype
    optional: bool = False


Contents = Mapping[str, Field]
"""The tensors of one kind of message, by the name of their field; those of weights as ``field.name``."""


@dataclass(frozen=True)
class Rules:
    """What is expected of the next blob.

    Args:
        sender: who sends it.
        phase: of which phase it is.
        round: of which round; ``None`` where any may come.
        kinds: which kinds of messages it may hold, and what their tensors may be.
        clients: whose messages they may be.
        max_bytes: how large it may be.
    """

    sender: str
    phase: str
    round: int | None
    kinds: Mapping[type[Message], Contents]
    clients: frozenset[int]
    max_bytes: int
