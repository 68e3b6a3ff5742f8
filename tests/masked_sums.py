"""Sites and a server around masked sums, in one process, with sites that drop out where a test says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from gfl_lightning.deploy.masking.fixed_point import FixedPoint, Words
from gfl_lightning.deploy.masking.keys import Identity
from gfl_lightning.deploy.masking.masker import Masker
from gfl_lightning.deploy.masking.messages import MaskedUpload
from gfl_lightning.deploy.masking.quorum import Quorum
from gfl_lightning.deploy.masking.ticket import Ticket
from gfl_lightning.deploy.masking.unmasker import Unmasker

RUN = "run"


def names(count: int) -> list[str]:
    return [f"site{number:02d}" for number in range(count)]


def met(
    count: int,
    code: FixedPoint = FixedPoint(),  # noqa: B008  # frozen
    quorum: Quorum = Quorum(),  # noqa: B008
) -> tuple[Unmasker, dict[str, Masker]]:
    """A server and sites that know each other's keys."""
    identities = {name: Identity.new() for name in names(count)}
    trusted = {name: identity.public for name, identity in identities.items()}
    server = Unmasker(code, quorum)
    sites = {name: Masker(name, identity, RUN, code, quorum, trusted) for name, identity in identities.items()}
    roll = server.roll({name: site.enrol() for name, site in sites.items()})
    for site in sites.values():
        site.meet(roll)
    return server, sites


def prepared(
    server: Unmasker, sites: Mapping[str, Masker], tickets: Sequence[Ticket], absent: Collection[str] = ()
) -> None:
    """Everybody has keys for some sums, but those that are absent."""
    rosters = server.rosters(
        tickets, {name: site.prepare(tickets) for name, site in sites.items() if name not in absent}
    )
    for name, roster in rosters.items():
        sites[name].learn(tickets, roster)


def uploaded(
    sites: Mapping[str, Masker],
    ticket: Ticket,
    values: Mapping[str, Tensor],
    absent: Collection[str] = (),
    for_me: Mapping[str, Sequence[slice]] | None = None,
) -> dict[str, MaskedUpload]:
    parts = for_me or {}
    return {
        name: site.masked(ticket, values[name], parts.get(name, ()))
        for name, site in sites.items()
        if name not in absent
    }


def opened(
    server: Unmasker,
    sites: Mapping[str, Masker],
    ticket: Ticket,
    uploads: Mapping[str, MaskedUpload],
    absent: Collection[str] = (),
) -> Words:
    survivors = server.survivors(ticket, uploads)
    openings = {name: sites[name].open(ticket, survivors) for name in survivors if name not in absent}
    return server.total(ticket, uploads, openings)
