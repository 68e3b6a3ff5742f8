"""What sites and server send each other for a masked sum. Keys, signatures and boxes travel as bytes (uint8)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.federated.protocol.messages import Message

BySite = dict[str, Tensor]


def to_tensor(data: bytes) -> Tensor:
    """Bytes as a tensor ``[n]``.

    >>> to_bytes(to_tensor(b"key"))
    b'key'
    """
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def to_bytes(tensor: Tensor) -> bytes:
    """The bytes of a tensor."""
    return tensor.contiguous().numpy().tobytes()


@dataclass(frozen=True, eq=False)
class Enrolment(Message):
    """Site to server, once a run: its identity, the key that others lock boxes for it with, and a signature.

    ``shares [1]`` says how many shares of noise it adds to every sum of models, 0 where noise is not split.

    >>> Enrolment(*(torch.zeros(n).byte() for n in (32, 32, 64)), shares=torch.tensor([3])).nbytes
    136
    """

    identity: Tensor
    channel: Tensor
    signature: Tensor
    shares: Tensor


@dataclass(frozen=True, eq=False)
class Roll(Message):
    """Server to sites, once a run: everybody's enrolment."""

    identity: BySite
    channel: BySite
    signature: BySite
    shares: BySite


@dataclass(frozen=True, eq=False)
class Preparation(Message):
    """Site to server, before T sums: fresh keys, and shares of what must be known if somebody drops out.

    ``announced [T, 64]`` holds for each sum the public half of the key for pairwise masks and the SHA-256 of the seed
    of the site's own mask, ``signature [64]`` is of all of them. ``boxes`` has one for each other site, locked for it:
    for each sum one share of the private half and one of the seed, ``[66 T + 28]``.
    """

    announced: Tensor
    signature: Tensor
    boxes: BySite


@dataclass(frozen=True, eq=False)
class Roster(Message):
    """Server to site, before T sums: what the sites announced, and the others' boxes for this site."""

    announced: BySite
    signature: BySite
    boxes: BySite


@dataclass(frozen=True, eq=False)
class MaskedUpload(Message):
    """Site to server: its contribution to a sum and its masks, whole numbers modulo 2^b that look random."""

    words: Tensor


@dataclass(frozen=True, eq=False)
class SealedSum(Message):
    """Server to the site of receiver k: the sum for k, under a pad that only that site knows.

    ``hidden`` is C_k's part; ``gradient`` is ∇C_k's, for receivers that train.
    """

    client: int
    hidden: Tensor
    gradient: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Opening(Message):
    """Site to server, after a sum: its share of the seed of each site that uploaded, of the key of each that did not.

    One share of each site, so never both: either alone opens nothing of it.
    """

    shares: BySite
