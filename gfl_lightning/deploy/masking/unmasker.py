"""The server's side of a masked sum: it passes keys on, adds up what it cannot read, and opens the sum alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from gfl_lightning.checks import InputError, require
from gfl_lightning.deploy.masking.announcements import (
    Announcement,
    pair_context,
    read_announcements,
    roster_digest,
    seed_digest,
)
from gfl_lightning.deploy.masking.fixed_point import FixedPoint, Words
from gfl_lightning.deploy.masking.keys import AgreementKey, derived
from gfl_lightning.deploy.masking.messages import (
    Enrolment,
    MaskedUpload,
    Opening,
    Preparation,
    Roll,
    Roster,
    to_bytes,
)
from gfl_lightning.deploy.masking.quorum import Quorum
from gfl_lightning.deploy.masking.shamir import SHARE_BYTES, combine, weights_at_zero
from gfl_lightning.deploy.masking.streams import add_streams
from gfl_lightning.deploy.masking.ticket import Ticket

EMPTY = torch.empty(0, dtype=torch.uint8)


@dataclass(eq=False)
class Unmasker:
    """Σ_{i∈U} x_i = Σ_{i∈U} (y_i − m_i) − Σ_{i∈U, j∉U} ± m_ij, U being the sites that uploaded.

    The seeds of m_i and the keys of j ∉ U come from the shares that t sites tell; each is checked against what its
    owner announced.

    Args:
        code: real numbers as whole ones.
        quorum: how many sites open a sum.
        of_sites: how many sites the federation has, of which t must be there.
    """

    code: FixedPoint = field(default_factory=FixedPoint)
    quorum: Quorum = field(default_factory=Quorum)
    of_sites: int = 0
    _identities: dict[str, bytes] = field(default_factory=dict, init=False)
    _announcements: dict[Ticket, dict[str, Announcement]] = field(default_factory=dict, init=False)

    @property
    def sites(self) -> tuple[str, ...]:
        """Those that enrolled, in order of their names, which gives each its point for shares."""
        return tuple(self._identities)

    @property
    def _n(self) -> int:
        """n."""
        return max(self.of_sites, len(self.sites))

    def roll(self, enrolments: Mapping[str, Enrolment]) -> Roll:
        """Everybody's enrolment, for everybody."""
        n = max(self.of_sites, len(enrolments))
        self.quorum.require_enough(Ticket("", 0, "enrolment"), set(enrolments), n)
        self._identities = {site: to_bytes(made.identity) for site, made in sorted(enrolments.items())}
        self._announcements.clear()
        return Roll(
            {site: made.identity for site, made in enrolments.items()},
            {site: made.channel for site, made in enrolments.items()},
            {site: made.signature for site, made in enrolments.items()},
            {site: made.shares for site, made in enrolments.items()},
        )

    def rosters(self, tickets: Sequence[Ticket], preparations: Mapping[str, Preparation]) -> dict[str, Roster]:
        """For each site that prepared some sums what the others did; those that did not are not part of these sums."""
        self.quorum.require_enough(tickets[0], set(preparations), self._n)
        announced = {site: made.announced for site, made in preparations.items()}
        signature = {site: made.signature for site, made in preparations.items()}
        found = read_announcements(tickets, announced, signature, self._identities)
        self._announcements |= dict(zip(tickets, found, strict=True))
        return {
            site: Roster(
                announced, signature, {other: made.boxes[site] for other, made in preparations.items() if other != site}
            )
            for site in preparations
        }

    def members(self, ticket: Ticket) -> tuple[str, ...]:
        """The sites that may contribute to a sum; none where it was not prepared."""
        return tuple(self._announcements.get(ticket, ()))

    def survivors(self, ticket: Ticket, uploads: Mapping[str, MaskedUpload]) -> list[str]:
        """The sites whose uploads the server has, in order; too few to open the sum are refused."""
        strange = sorted(set(uploads) - set(self.members(ticket)))
        require(not strange, "uploads", f"come from sites that prepared {ticket}", strange)
        self.quorum.require_enough(ticket, set(uploads), self._n)
        return sorted(uploads)

    def total(self, ticket: Ticket, uploads: Mapping[str, MaskedUpload], openings: Mapping[str, Opening]) -> Words:
        """Σ_{i∈U} x_i as whole numbers, but for the pads of parts that are sealed."""
        survivors, announcements = self.survivors(ticket, uploads), self._announcements[ticket]
        threshold = self.quorum.threshold_of(self._n)
        if len(openings) < threshold:
            raise InputError(
                f"{ticket} must be opened by {threshold} sites, got {', '.join(sorted(openings)) or 'none'}; what was "
                "uploaded for it stays masked."
            )
        helpers = sorted(openings)[:threshold]
        points = {site: 1 + self.sites.index(site) for site in helpers}
        weights = weights_at_zero(tuple(points.values()))

        def secret(of: str) -> bytes:
            told = {points[helper]: to_bytes(openings[helper].shares.get(of, EMPTY)) for helper in helpers}
            value = combine(told, weights) if all(len(share) == SHARE_BYTES for share in told.values()) else None
            self._require_announced(of, ticket, value is not None)
            assert value is not None
            return value

        masks: list[bytes] = []
        plus: list[bytes] = []
        minus: list[bytes] = []
        for site in survivors:
            seed = secret(site)
            self._require_announced(site, ticket, seed_digest(seed) == announcements[site].seed_digest)
            masks.append(derived(seed, ticket.context("own mask")))
        digest = roster_digest(ticket, announcements)
        for gone in sorted(set(announcements) - set(survivors)):
            key = AgreementKey.of(secret(gone))
            self._require_announced(gone, ticket, key.public == announcements[gone].public)
            for site in survivors:
                pair = key.agree(announcements[site].public, pair_context(ticket, digest, gone, site))
                (minus if site < gone else plus).append(pair)
        words = self._added(uploads)
        add_streams(words, plus, masks + minus)
        del self._announcements[ticket]
        return words

    @staticmethod
    def _require_announced(site: str, ticket: Ticket, same: bool) -> None:
        if not same:
            raise InputError(f"the shares of site {site} for {ticket} must give the secret it announced, got another.")

    def _added(self, uploads: Mapping[str, MaskedUpload]) -> Words:
        """Σ y_i modulo 2^b."""
        first, *others = (self.code.words(upload.words) for upload in uploads.values())
        total = first.copy()
        for words in others:
            require(words.shape == total.shape, "masked uploads", f"all have {total.size} numbers", words.size)
            total += words
        return total
