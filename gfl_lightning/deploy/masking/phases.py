"""The phases that masked sums add to a deployment, and what passes in each."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gfl_lightning.deploy.masking.announcements import ANNOUNCED_BYTES
from gfl_lightning.deploy.masking.keys import KEY_BYTES, NONCE_BYTES, SIGNATURE_BYTES, TAG_BYTES
from gfl_lightning.deploy.masking.shamir import SHARE_BYTES
from gfl_lightning.deploy.masking.ticket import Ticket
from gfl_lightning.deploy.rules import Contents, Field

ENROL, KEYS, ROSTER, OPEN = "mask_enrol", "mask_keys", "mask_roster", "mask_open"
SHARE, TRAIN, FINISH = "share", "train", "finish"


def tickets_from(run: str, first: int, rounds: int) -> list[Ticket]:
    """The sums of some rounds: each has one for what is shared and one for the models."""
    return [Ticket(run, t, phase) for t in range(first, first + rounds) for phase in (SHARE, TRAIN)]


def _bytes(*shape: int) -> Field:
    return Field((shape,), torch.uint8)


def _by_site(name: str, sites: Sequence[str], field: Field) -> Contents:
    return {f"{name}.{site}": Field(field.shapes, field.dtype, optional=True) for site in sites}


_ENROLMENT: Contents = {
    "identity": _bytes(KEY_BYTES),
    "channel": _bytes(KEY_BYTES),
    "signature": _bytes(SIGNATURE_BYTES),
    "shares": Field(((1,),), torch.int64),
}


def enrolment() -> Contents:
    """Of an :class:`Enrolment`."""
    return dict(_ENROLMENT)


def roll(sites: Sequence[str]) -> Contents:
    """Of a :class:`Roll`."""
    return {name: one for part, field in _ENROLMENT.items() for name, one in _by_site(part, sites, field).items()}


def preparation(sites: Sequence[str], sums: int) -> Contents:
    """Of a :class:`Preparation` for so many sums."""
    box = _bytes(NONCE_BYTES + 2 * SHARE_BYTES * sums + TAG_BYTES)
    return {
        "announced": _bytes(sums, ANNOUNCED_BYTES),
        "signature": _bytes(SIGNATURE_BYTES),
        **_by_site("boxes", sites, box),
    }


def roster(sites: Sequence[str], sums: int) -> Contents:
    """Of a :class:`Roster` for so many sums."""
    box = _bytes(NONCE_BYTES + 2 * SHARE_BYTES * sums + TAG_BYTES)
    return {
        **_by_site("announced", sites, _bytes(sums, ANNOUNCED_BYTES)),
        **_by_site("signature", sites, _bytes(SIGNATURE_BYTES)),
        **_by_site("boxes", sites, box),
    }


def opening(sites: Sequence[str]) -> Contents:
    """Of an :class:`Opening`."""
    return _by_site("shares", sites, _bytes(SHARE_BYTES))
