"""The account of records that are randomised once: each draw is paid for once, and another one anew."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.noise_key import NoiseKey, digest
from gfl_lightning.privacy.randomise.once import what_is_released
from gfl_lightning.privacy.randomise.report import records_entry
from gfl_lightning.privacy.shared_ledger import SharedLedger


class RecordsAccount:
    """Knows which draw a model was trained on.

    >>> RecordsAccount().first is None
    True
    """

    def __init__(self) -> None:
        self.first: str | None = None
        self.gaps: tuple[str, ...] = ()
        self._now = b""

    def hides(self, records: Records, graph: ClientGraph) -> bytes:
        """What the draw for a graph is bound to; the last one asked for is what is charged next."""
        self._now = digest(repr(records), *what_is_released(graph))
        return self._now

    def doubt(self, *gaps: str) -> None:
        """Promise nothing any more of what is made of the draws, for these reasons."""
        self.gaps = tuple(dict.fromkeys((*self.gaps, *gaps)))

    def charge(self, records: Records, key: NoiseKey, guarantee: Guarantee, *told: str) -> None:
        """Write the draw at hand down, or refuse it, unless it is the very one that the model was trained on.

        It promises nothing where something is ``told`` beside it, such as statistics of the records.
        """
        mark = digest(key.secret, self._now).hex()
        if mark == self.first:
            return
        again, file = self.first is not None, guarantee.ledger
        rule = (
            "name a file where other data than those of the fit are randomised (callbacks.PrivacyBudget(ledger=…)), as "
            "these records are paid for anew"
        )
        require(not again or file is not None, "ledger", rule, file)
        if file is not None:
            entry = records_entry(records, mark)
            keeps = not (told or self.gaps or key.reproducible)
            entry = entry if keeps else replace(entry, epsilon=math.inf)
            SharedLedger(Path(file)).write(entry, guarantee.max_epsilon)
        self.first = self.first or mark
