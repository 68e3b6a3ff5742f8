"""What sites announce before some sums, and what the server cannot announce in their place."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.masking.keys import KEY_BYTES, Identity, is_signed_by
from gfl_lightning.deploy.masking.messages import BySite, to_bytes
from gfl_lightning.deploy.masking.ticket import Ticket

ANNOUNCED_BYTES = 2 * KEY_BYTES


@dataclass(frozen=True)
class Announcement:
    """For one sum: a public key for pairwise masks, and the SHA-256 of the seed of a site's own mask.

    >>> made = Announcement(bytes(32), seed_digest(bytes(32)))
    >>> Announcement.from_bytes(made.to_bytes()) == made
    True
    """

    public: bytes
    seed_digest: bytes

    def to_bytes(self) -> bytes:
        """For the wire."""
        return self.public + self.seed_digest

    @classmethod
    def from_bytes(cls, announced: bytes) -> Announcement:
        """From the wire."""
        return cls(announced[:KEY_BYTES], announced[KEY_BYTES:])


def seed_digest(seed: bytes) -> bytes:
    """SHA-256: binds a site to its seed and tells nothing of it."""
    return hashlib.sha256(seed).digest()


def batch_context(purpose: str, tickets: Sequence[Ticket], *parts: str | bytes) -> bytes:
    """What is bound to several sums at once."""
    return b"".join(ticket.context(purpose) for ticket in tickets) + tickets[0].context(purpose, *parts)


def signed(site: str, tickets: Sequence[Ticket], announced: bytes, identity: Identity) -> bytes:
    """A site's signature of what it announces for some sums."""
    return identity.sign(batch_context("announcements", tickets, site, announced))


def read_announcements(
    tickets: Sequence[Ticket], announced: BySite, signatures: BySite, identities: Mapping[str, bytes]
) -> list[dict[str, Announcement]]:
    """For each sum the announcements by site, in order of their names; refused unless the sites signed them for it."""
    by_sum: list[dict[str, Announcement]] = [{} for _ in tickets]
    for site in sorted(announced):
        text = to_bytes(announced[site])
        context = batch_context("announcements", tickets, site, text)
        signature = to_bytes(signatures[site]) if site in signatures else b""
        whole = len(text) == ANNOUNCED_BYTES * len(tickets) and site in identities
        if not whole or not is_signed_by(identities[site], signature, context):
            raise InputError(
                f"the keys of site {site} from {tickets[0]} on must be signed by its identity, got another signature."
            )
        for number, found in enumerate(by_sum):
            found[site] = Announcement.from_bytes(text[ANNOUNCED_BYTES * number :][:ANNOUNCED_BYTES])
    return by_sum


def roster_digest(ticket: Ticket, announcements: Mapping[str, Announcement]) -> bytes:
    """Binds masks to the set of sites and keys: two sites that were shown different ones share no mask."""
    parts = [part for site, made in sorted(announcements.items()) for part in (site, made.public)]
    return hashlib.sha256(ticket.context("roster", *parts)).digest()


def pair_context(ticket: Ticket, digest: bytes, a: str, b: str) -> bytes:
    """What the key for the mask between two sites is derived for."""
    return ticket.context("pairwise mask", digest, min(a, b), max(a, b))
