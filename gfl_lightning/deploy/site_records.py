"""Records that a site randomises once, before anything of them leaves it, and what it has paid for them.

Everything that a site sends is then made of the draw alone: rounds, phases, protocols and repetitions cost nothing
more. The draw is bound to what it hides, so the same table gives the same records after a restart. Other rows, or
another census, give another draw, which is paid for as well: a file in the site's folder is its ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gfl_lightning.checks import require
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.site_account import STATISTICS
from gfl_lightning.federated.protocol.messages import Message
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.records.records import Census
from gfl_lightning.privacy.noise_key import NoiseKey, digest
from gfl_lightning.privacy.randomise.once import what_is_released
from gfl_lightning.privacy.randomise.report import records_entry, records_report
from gfl_lightning.privacy.report import PrivacyReport
from gfl_lightning.privacy.shared_ledger import SharedLedger

FILE = "records.jsonl"


class SiteRecords:
    """Draws the records of a site, and keeps account of the draws.

    Args:
        folder: where the account is kept.
        plan: whose records they are, and how much may be spent; no more than one draw by default.
        key: of the draws.
        tells_statistics: whether sums of the table leave the site beside them.
    """

    def __init__(self, folder: Path, plan: Plan, key: NoiseKey, tells_statistics: bool) -> None:
        self._ledger, self._plan, self._key = SharedLedger(folder / FILE), plan, key
        self._statistics = (STATISTICS,) if tells_statistics else ()

    def drawn(self, graph: ClientGraph, census: Census) -> ClientGraph:
        """The records of the site's clients, written down before they are made."""
        records = self._plan.records
        hidden = digest(repr(records), census.most, *what_is_released(graph))
        entry = records_entry(records, digest(self._key.secret, hidden).hex())
        budget = self._plan.guarantee.max_epsilon
        most = records.epsilon if budget is None else budget
        known = self._ledger.entries()
        left = most - sum(one.epsilon for run, one in known.items() if run != entry.run)
        require(
            records.epsilon <= left * (1 + 1e-9),
            "max_epsilon",
            "leave room for records of other rows than those that this site has randomised before; name a budget "
            "(callbacks.PrivacyBudget) that does",
            most,
        )
        self._ledger.write(entry)
        return records.of_some(graph, self._key.source("records", hides=hidden).generator(), census)

    def charge(self, messages: Sequence[Message], shares: Sequence[int], trains: Sequence[int]) -> None:
        """Nothing: messages are made of records that are paid for."""

    def report(self) -> PrivacyReport:
        """What the draws have cost together."""
        told = records_report(self._plan.records, self._key, self._statistics)
        spent = self._ledger.total()
        return replace(told, epsilon=max(told.epsilon, spent.epsilon), delta=max(told.delta, spent.delta))
