"""Envelopes to sites and back over a transport: a blob that may not be taken up counts as none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from gfl_lightning.checks import InputError
from gfl_lightning.deploy import phases
from gfl_lightning.deploy.aggregation import Aggregation
from gfl_lightning.deploy.codec import decode, encode
from gfl_lightning.deploy.contents import Kinds
from gfl_lightning.deploy.envelope import SERVER, Envelope, Outgoing
from gfl_lightning.deploy.notes import Asked, require_notes
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.roster import Roster
from gfl_lightning.deploy.rules import BlobError, Rules
from gfl_lightning.deploy.site import PROBLEM
from gfl_lightning.deploy.transport import Transport

log = logging.getLogger(__name__)


class TooFewSitesError(RuntimeError):
    """Fewer sites than are needed have answered; the rounds made so far are on disk."""


@dataclass(eq=False)
class Asking:
    """Asks sites on behalf of the server.

    Args:
        plan: what is done.
        roster: which clients are at which site.
        transport: carries blobs.
    """

    plan: Plan
    roster: Roster
    transport: Transport
    sums: Aggregation | None = field(default=None, init=False)
    """What is expected of answers once the model's sizes are agreed."""
    sent: dict[str, int] = field(default_factory=lambda: {"up": 0, "down": 0}, init=False)

    def __call__(
        self, phase: str, t: int, outgoing: Mapping[str, Outgoing]
    ) -> tuple[dict[str, Envelope], dict[str, str]]:
        """Send envelopes and take the replies: those that are good, and why each other site has none."""
        good, missing, problems = self._exchange(phase, t, outgoing)
        missing |= problems
        for site, why in missing.items():
            log.warning("round %s, phase %s: %s is absent: %s", t, phase, site, why)
        return good, missing

    def everyone(self, phase: str, outgoing: Mapping[str, Outgoing]) -> dict[str, Envelope]:
        """The replies of all sites: one that reports a mistake is refused, one that is silent must come back first."""
        good, silent, problems = self._exchange(phase, 0, outgoing)
        if problems:
            raise InputError(f"every site must be able to begin, got {len(problems)} that cannot:\n{_listed(problems)}")
        if silent:
            raise TooFewSitesError(f"every site must answer before training, got none of:\n{_listed(silent)}")
        return good

    def take_sent(self) -> dict[str, int]:
        """Bytes since the last time, ``up`` and ``down``."""
        sent, self.sent = self.sent, {"up": 0, "down": 0}
        return sent

    def rules(self, site: str, phase: str, t: int) -> Rules:
        """What is expected of a site's answer."""
        kinds: Kinds = {}
        most = phases.SLACK
        if self.sums is not None:
            model = self.sums.server.model
            kinds = {**phases.kinds_up(phase, model, self.plan.protocol), **self.sums.kinds(phase)}
            most = phases.most_bytes(model, len(self.roster.sites.get(site, ()))) + self.sums.most_bytes(phase)
        whose = self.roster.numbers(site) if site in self.roster.sites else ()
        return Rules(site, phase, t, kinds, frozenset(whose), most)

    def _asked(self, site: str, outgoing: Outgoing) -> Asked:
        tables = self.plan.tables
        return Asked(outgoing.notes, self.roster.sites.get(site, ()), {*tables.ranges, *tables.categories})

    def _exchange(
        self, phase: str, t: int, outgoing: Mapping[str, Outgoing]
    ) -> tuple[dict[str, Envelope], dict[str, str], dict[str, str]]:
        """Good replies, why there is none of other sites, and what is wrong at sites that did answer."""
        blobs = {s: encode(Envelope(phase, t, SERVER, tuple(o.messages), o.notes)) for s, o in outgoing.items()}
        timeout = max(self.plan.timeout, phases.JOINING) if phase in phases.BEFORE_TRAINING else self.plan.timeout
        replies, missing = self.transport.exchange(phase, blobs, timeout)
        good, problems = {}, {}
        for site in (one for one in blobs if one in replies):  # not as they came: sums are to have the same bits again
            try:
                reply = decode(replies[site], self.rules(site, phase, t))
                if PROBLEM not in reply.notes:
                    require_notes(phase, reply.notes, self._asked(site, outgoing[site]))
            except BlobError as refused:
                problems[site] = f"its answer was refused: {refused}"
                continue
            if PROBLEM in reply.notes:
                problems[site] = str(reply.notes[PROBLEM])
            else:
                good[site] = reply
        self.sent["down"] += sum(map(len, blobs.values()))
        self.sent["up"] += sum(len(replies[site]) for site in good)
        return good, missing, problems


def _listed(reasons: Mapping[str, str]) -> str:
    return "\n".join(f"  {site}: {why}" for site, why in reasons.items())
