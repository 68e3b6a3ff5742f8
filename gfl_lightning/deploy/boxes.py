"""What passes through one server for another: numbers locked by a site for the second server, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.masking.keys import (
    KEY_BYTES,
    NONCE_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    AgreementKey,
    locked,
    unlocked,
)
from gfl_lightning.deploy.masking.messages import to_bytes, to_tensor
from gfl_lightning.deploy.masking.ticket import Ticket
from gfl_lightning.deploy.rules import Contents, Field
from gfl_lightning.federated.protocol.messages import Message

SECOND = "second"
BEGIN, KEY, RELAY = "second_begin", "second_key", "second_share"
UP, DOWN = "to the second server", "from the second server"


@dataclass(frozen=True, eq=False)
class SecondKey(Message):
    """Second server to sites, through the first: the key for boxes, signed by its identity."""

    identity: Tensor
    public: Tensor
    signature: Tensor


@dataclass(frozen=True, eq=False)
class Box(Message):
    """Site to second server or back, through the first: a public key ``[32]`` and numbers locked with it."""

    public: Tensor
    box: Tensor


@dataclass(frozen=True, eq=False)
class Boxes(Message):
    """First server to second or back: the boxes of all sites that shared, with their public keys."""

    public: dict[str, Tensor]
    box: dict[str, Tensor]


def context(run: str, t: int, site: str, way: str) -> bytes:
    """What a box is for."""
    return Ticket(run, t, RELAY).context(way, site)


def lock_numbers(
    key: AgreementKey, public: bytes, purpose: bytes, values: Mapping[int, Tensor], who: Sequence[int], size: int
) -> Tensor:
    """Vectors of some clients, and which of them there are, locked: a box of the same size whoever there is."""
    present = np.array([k in values for k in who], dtype=np.uint8)
    empty = torch.zeros(size, dtype=torch.float32)
    rows = torch.stack([values[k].float() if k in values else empty for k in who])
    return to_tensor(
        locked(key.agree(public, purpose), present.tobytes() + rows.numpy().astype("<f4").tobytes(), purpose)
    )


def unlock_numbers(
    key: AgreementKey, public: bytes, purpose: bytes, box: Tensor, who: Sequence[int], size: int
) -> dict[int, Tensor]:
    """The vectors in a box, by client; a box for another purpose or by another key is refused."""
    text = unlocked(key.agree(public, purpose), to_bytes(box), purpose)
    if text is None or len(text) != len(who) * (1 + 4 * size):
        raise InputError("a box must be locked for its reader and its round, got another one.")
    rows = torch.from_numpy(np.frombuffer(text, "<f4", offset=len(who)).reshape(len(who), size).copy())
    found = {k: row for k, row, here in zip(who, rows, text[: len(who)], strict=True) if here}
    if not all(bool(row.isfinite().all()) for row in found.values()):
        raise InputError("a box must hold finite numbers, got nan or infinity.")
    return found


def box_bytes(clients: int, size: int) -> int:
    """What a box for so many clients takes."""
    return NONCE_BYTES + clients * (1 + 4 * size) + TAG_BYTES


def key_contents() -> Contents:
    """Of a :class:`SecondKey`."""
    sizes = {"identity": KEY_BYTES, "public": KEY_BYTES, "signature": SIGNATURE_BYTES}
    return {name: Field(((size,),), torch.uint8) for name, size in sizes.items()}


def box_contents(clients: Iterable[int], size: int) -> Contents:
    """Of a :class:`Box` for one of these numbers of clients."""
    shapes = tuple(sorted({(box_bytes(count, size),) for count in clients}))
    return {"public": Field(((KEY_BYTES,),), torch.uint8), "box": Field(shapes, torch.uint8)}


def boxes_contents(clients: Mapping[str, int], size: int) -> Contents:
    """Of :class:`Boxes`, by the number of clients of each site."""
    public = {f"public.{site}": Field(((KEY_BYTES,),), torch.uint8, optional=True) for site in clients}
    return public | {
        f"box.{site}": Field(((box_bytes(count, size),),), torch.uint8, optional=True)
        for site, count in clients.items()
    }
