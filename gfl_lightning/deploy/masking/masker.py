"""A site's side of a masked sum: keys, shares, masks, and the rules by which it helps to open one."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.deploy.masking.announcements import (
    Announcement,
    batch_context,
    pair_context,
    read_announcements,
    roster_digest,
    seed_digest,
    signed,
)
from gfl_lightning.deploy.masking.fixed_point import FixedPoint, Words
from gfl_lightning.deploy.masking.keys import AgreementKey, Identity, derived, is_signed_by, locked, unlocked
from gfl_lightning.deploy.masking.messages import (
    Enrolment,
    MaskedUpload,
    Opening,
    Preparation,
    Roll,
    Roster,
    to_bytes,
    to_tensor,
)
from gfl_lightning.deploy.masking.openings import Openings
from gfl_lightning.deploy.masking.quorum import Quorum
from gfl_lightning.deploy.masking.shamir import SECRET_BYTES, SHARE_BYTES, split
from gfl_lightning.deploy.masking.streams import add_streams
from gfl_lightning.deploy.masking.ticket import SEALED_PHASES, Ticket

Shares = tuple[bytes, bytes]


@dataclass(frozen=True, eq=False)
class _Secrets:
    """What a site made for one sum: the key of its pairwise masks, the seed of its own, and its shares of both."""

    key: AgreementKey
    seed: bytes
    shares: Shares


@dataclass(frozen=True, eq=False)
class _Sum:
    """What a site knows of one sum: who may contribute with which key, and its shares of the others' secrets."""

    announcements: Mapping[str, Announcement]
    shares: Mapping[str, Shares]


@dataclass(eq=False)
class Masker:
    """y_i = x_i + Σ_{j>i} m_ij − Σ_{j<i} m_ij + m_i (mod 2^b): what site i uploads for a sum.

    m_ij is drawn out of a key that i and j agree on, and cancels in the sum. m_i is i's own; its seed is shared among
    all sites, who tell the server their shares once it has said whose uploads it has. Of a site whose upload it does
    not have they tell their shares of its key instead, so that its halves of m_ij can be taken out. No site ever tells
    both of one site, so an upload that was thought lost and comes late stays masked for good. Parts of a sum that are
    for one receiver alone are under one more mask, which its site puts on, keeps, and takes off what comes back.

    Args:
        name: of the site.
        identity: its long-lived key.
        run: names the run.
        code: real numbers as whole ones.
        quorum: how many sites open a sum.
        trusted: identities by site, known from elsewhere than this server; empty means that the server's word is taken.
        openings: the sums that the site has helped to open.
        of_sites: how many sites the federation has, of which t must be there; at least those that are known.
        shares: how many shares of noise the site adds to every sum of models.
    """

    name: str
    identity: Identity
    run: str
    code: FixedPoint = field(default_factory=FixedPoint)
    quorum: Quorum = field(default_factory=Quorum)
    trusted: Mapping[str, bytes] = field(default_factory=dict)
    openings: Openings = field(default_factory=Openings)
    of_sites: int = 0
    shares: int = 0
    shares_of: dict[str, int] = field(default_factory=dict, init=False)
    _channel: AgreementKey = field(default_factory=AgreementKey.new, init=False, repr=False)
    _channels: dict[str, bytes] = field(default_factory=dict, init=False)
    _identities: dict[str, bytes] = field(default_factory=dict, init=False)
    _secrets: dict[Ticket, _Secrets] = field(default_factory=dict, init=False, repr=False)
    _sums: dict[Ticket, _Sum] = field(default_factory=dict, init=False, repr=False)
    _masked: set[Ticket] = field(default_factory=set, init=False)
    _pads: dict[Ticket, bytes] = field(default_factory=dict, init=False, repr=False)

    def enrol(self) -> Enrolment:
        """Who this is, and the key for boxes."""
        public = self._channel.public
        signature = self.identity.sign(self._enrolled(self.name, public, self.shares))
        shares = torch.tensor([self.shares])
        return Enrolment(to_tensor(self.identity.public), to_tensor(public), to_tensor(signature), shares)

    def meet(self, roll: Roll) -> None:
        """Learn who the others are; a site that is not whom the roll says, or a roll without this one, is refused."""
        whole = all(set(part) == set(roll.identity) for part in (roll.channel, roll.signature, roll.shares))
        require(whole, "the roll", "have everything of every site that it names", sorted(roll.identity))
        self._require_quorum(Ticket(self.run, 0, "enrolment"), roll.identity)
        identities = {site: to_bytes(key) for site, key in sorted(roll.identity.items())}
        channels = {site: to_bytes(key) for site, key in sorted(roll.channel.items())}
        shares = {site: int(count) for site, count in sorted(roll.shares.items())}
        told = (identities.get(self.name), channels.get(self.name), shares.get(self.name))
        mine = told == (self.identity.public, self._channel.public, self.shares)
        require(mine, "the roll", f"have the keys of this site, {self.name}", sorted(identities))
        for site, identity in identities.items():
            known = self.trusted.get(site, identity if not self.trusted else b"")
            enrolled = self._enrolled(site, channels[site], shares[site])
            signed = is_signed_by(identity, to_bytes(roll.signature[site]), enrolled)
            if identity != known or not signed or shares[site] < 0:
                raise InputError(f"site {site} must enrol with the identity that is known of it, got another.")
        self._identities, self._channels, self.shares_of = identities, channels, shares

    def prepare(self, tickets: Sequence[Ticket]) -> Preparation:
        """Fresh keys and seeds for some sums, in shares for all sites."""
        threshold, points = self.quorum.threshold_of(self._sites), range(1, len(self._channels) + 1)
        announced = b""
        texts = dict.fromkeys(self._channels, b"")
        for ticket in tickets:
            key, seed = AgreementKey.new(), secrets.token_bytes(SECRET_BYTES)
            announced += Announcement(key.public, seed_digest(seed)).to_bytes()
            both = zip(split(key.secret, threshold, points), split(seed, threshold, points), strict=True)
            shares = dict(zip(self._channels, both, strict=True))
            for site, (of_key, of_seed) in shares.items():
                texts[site] += of_key + of_seed
            self._secrets[ticket] = _Secrets(key, seed, shares[self.name])
        boxes = {site: to_tensor(self._box(tickets, site, text)) for site, text in texts.items() if site != self.name}
        signature = signed(self.name, tickets, announced, self.identity)
        return Preparation(to_tensor(announced).view(len(tickets), -1), to_tensor(signature), boxes)

    def learn(self, tickets: Sequence[Ticket], roster: Roster) -> None:
        """Take up what the others prepared for some sums; keys that they did not sign and broken boxes are refused."""
        self._require_quorum(tickets[0], roster.announced)
        texts = {site: self._unboxed(tickets, site, roster) for site in roster.announced if site != self.name}
        found = read_announcements(tickets, roster.announced, roster.signature, self._identities)
        for number, (ticket, announcements) in enumerate(zip(tickets, found, strict=True)):
            made = self._secrets.get(ticket)
            mine = None if made is None else Announcement(made.key.public, seed_digest(made.seed))
            if made is None or announcements.get(self.name) != mine:
                raise InputError(f"a roster must have what site {self.name} prepared for {ticket}, got other keys.")
            shares = {site: _share_pair(text, number) for site, text in texts.items()}
            self._sums[ticket] = _Sum(announcements, shares | {self.name: made.shares})

    def masked(
        self, ticket: Ticket, values: Tensor, for_me: Sequence[slice] = (), beside: Sequence[Tensor] = ()
    ) -> MaskedUpload:
        """The site's contribution ``[n]`` to a sum, masked; ``for_me`` are the parts that only this site shall read.

        What is ``beside`` becomes whole numbers by itself and is added to them: no rounding depends on both. Keys and
        seed are gone afterwards: no second upload can be made with the same masks.
        """
        if ticket not in self._sums or ticket not in self._secrets:
            raise InputError(
                f"{ticket} must be prepared by this site and uploaded once, got it a second time or unprepared."
            )
        announcements, made = self._sums[ticket].announcements, self._secrets.pop(ticket)
        parts = len(announcements) * (1 + len(beside))
        words = self.code.encode(values.flatten(), parts)
        for more in beside:
            words += self.code.encode(more.flatten(), parts)
        digest = roster_digest(ticket, announcements)
        pairs = {
            site: made.key.agree(announcement.public, pair_context(ticket, digest, self.name, site))
            for site, announcement in announcements.items()
            if site != self.name
        }
        own = derived(made.seed, ticket.context("own mask"))
        later = [key for site, key in pairs.items() if self.name < site]
        add_streams(words, [own, *later], [key for site, key in pairs.items() if site < self.name])
        if for_me:
            self._pads[ticket] = secrets.token_bytes(SECRET_BYTES)
            for number, part in enumerate(for_me):
                add_streams(words[part], [self._pad(ticket, number)])
        self._masked.add(ticket)
        return MaskedUpload(self.code.tensor(words))

    def open(self, ticket: Ticket, survivors: Sequence[str]) -> Opening:
        """Shares that open the sum over the sites whose uploads the server has; given for one set of sites only."""
        known = self._sums.get(ticket)
        if known is None or ticket not in self._masked:
            raise InputError(
                f"{ticket} must be a sum that this site has contributed to and not yet opened, got another."
            )
        strange = sorted(set(survivors) - set(known.announcements))
        require(not strange and self.name in survivors, "survivors", "be of the roster, this site among them", strange)
        self._require_quorum(ticket, survivors)
        sealed = ticket.phase in SEALED_PHASES and set(survivors) == set(known.announcements)
        self.openings.record(ticket, survivors, sealed)
        del self._sums[ticket]
        self._masked.discard(ticket)
        told = {site: seed if site in survivors else key for site, (key, seed) in known.shares.items()}
        return Opening({site: to_tensor(share) for site, share in told.items()})

    def unsealed(self, ticket: Ticket, number: int, sealed: Tensor) -> Tensor:
        """What the server sent back of part ``number`` of ``for_me``, without this site's pad, in double precision."""
        require(ticket in self._pads, "a sealed sum", "be of a sum that this site has sealed", str(ticket))
        words: Words = self.code.words(sealed.flatten()).copy()
        add_streams(words, minus=[self._pad(ticket, number)])
        return self.code.decode(words).view(sealed.shape)

    def forget(self, before: int) -> None:
        """Drop pads and unused keys of rounds before one."""
        for kept in (self._secrets, self._sums, self._pads):
            for ticket in [ticket for ticket in kept if ticket.round < before]:
                del kept[ticket]

    @property
    def _sites(self) -> int:
        """n: a server that enrols a few sites only cannot make them a majority."""
        return max(self.of_sites, len(self.trusted), len(self._channels))

    def _require_quorum(self, ticket: Ticket, sites: Collection[str]) -> None:
        self.quorum.require_enough(ticket, set(sites), max(self._sites, len(sites)))

    def _box(self, tickets: Sequence[Ticket], site: str, text: bytes) -> bytes:
        """Shares for another site, locked for it."""
        context = batch_context("shares", tickets, self.name, site)
        return locked(self._channel.agree(self._channels[site], context), text, context)

    def _unboxed(self, tickets: Sequence[Ticket], site: str, roster: Roster) -> bytes:
        """The shares that another site has locked for this one."""
        if site not in self._channels:
            raise InputError(f"a roster must name sites of the roll, got {site}.")
        context = batch_context("shares", tickets, site, self.name)
        key = self._channel.agree(self._channels[site], context)
        text = unlocked(key, to_bytes(roster.boxes[site]), context) if site in roster.boxes else None
        if text is None or len(text) != 2 * SHARE_BYTES * len(tickets):
            raise InputError(
                f"the box of site {site} from {tickets[0]} on must be locked by it for {self.name}, got another."
            )
        return text

    def _pad(self, ticket: Ticket, number: int) -> bytes:
        return derived(self._pads[ticket], ticket.context("receiver's pad", str(number)))

    def _enrolled(self, site: str, channel: bytes, shares: int) -> bytes:
        return Ticket(self.run, 0, "enrolment").context("enrolment", site, channel, str(shares))


def _share_pair(text: bytes, number: int) -> Shares:
    """A site's share of another's key and of its seed for sum ``number`` of a box."""
    both = text[2 * SHARE_BYTES * number :][: 2 * SHARE_BYTES]
    return both[:SHARE_BYTES], both[SHARE_BYTES:]
