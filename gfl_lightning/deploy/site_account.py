"""What the clients of a site have released, on the site's own disk: charged before an answer leaves, never forgotten.

An answer with the same bits as one of the last, asked for again after a restart, costs nothing more; any other does,
and so does a model whose noise is split over sites, as they all draw theirs anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.state_file import read_state, write_state
from gfl_lightning.federated.protocol.messages import Message
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.models.model import Model
from gfl_lightning.privacy.ledger import Ledger
from gfl_lightning.privacy.noise_key import NoiseKey, digest
from gfl_lightning.privacy.releases import Facts, Releases, releases
from gfl_lightning.privacy.report import PrivacyReport, privacy_report

FILE = "account.gfl"
REMEMBERED = 8  # answers; a server that goes on from its checkpoint asks for at most three again
STATISTICS = "statistics of the tables (sums and categories of training rows)"


def site_key(folder: Path) -> NoiseKey:
    """The secret that a site draws its noise from: made once, kept in its folder, mode 600."""
    for file in sorted(folder.glob(NoiseKey.file_name("*"))):
        return NoiseKey.load(file)
    key = NoiseKey.fresh()
    key.save(folder)
    return key


class SiteAccount:
    """μ² and sampled steps of each client of a site, as far as they were ever released.

    Args:
        folder: where the account is kept.
        plan: whose protection and guarantee are accounted for.
        model: what is shared.
        graph: the site's own samples.
    """

    def __init__(self, folder: Path, plan: Plan, model: Model, graph: ClientGraph) -> None:
        self._file, self._plan = folder / FILE, plan
        self._made: Releases = releases(plan.protection, plan.guarantee, _facts(plan, model, graph))
        kept = read_state(self._file) if self._file.is_file() else None
        self._ledger = Ledger.empty(graph.num_clients) if kept is None else Ledger.from_state(kept["ledger"])
        self._answers: list[str] = [] if kept is None else list(kept["answers"])

    def told_statistics(self) -> None:
        """Note that sums of the table have left without noise."""
        if STATISTICS not in self._ledger.gaps:
            self._keep(_with_gap(self._ledger, STATISTICS), self._answers)

    def charge(self, messages: Sequence[Message], shares: Sequence[int], trains: Sequence[int]) -> None:
        """Count an answer of some clients, given by their places, before it leaves; beyond the budget it may not."""
        bits = digest(*(part for one in messages for part in (type(one).__name__, vars(one)))).hex()
        anew = bool(trains) and self._plan.masking.split is not None  # split noise is drawn for every answer
        if bits in self._answers and not anew:
            return
        counts = (_counts(trains, len(self._ledger.server)), _counts(shares, len(self._ledger.server)))
        after = self._ledger.after(self._made, counts, rounds=int(bool(trains)))
        budget = self._plan.guarantee.max_epsilon
        if budget is not None and after.server_epsilon(self._made, self._plan.guarantee) > budget:
            raise InputError(f"max_epsilon must allow one more answer of this site, got {budget} and it is spent.")
        self._keep(after, [*self._answers[1 - REMEMBERED :], bits])

    def report(self) -> PrivacyReport:
        """What was spent."""
        rounds = self._ledger.rounds
        return privacy_report(self._ledger, rounds, self._made, self._plan.protection, self._plan.guarantee)

    def _keep(self, ledger: Ledger, answers: list[str]) -> None:
        write_state(self._file, {"ledger": ledger.state_dict(), "answers": answers})
        self._ledger, self._answers = ledger, answers


@dataclass(frozen=True)
class Unaccounted:
    """The account of a site whose uploads nothing protects: there is nothing to count."""

    def charge(self, messages: Sequence[Message], shares: Sequence[int], trains: Sequence[int]) -> None:
        """Nothing is promised."""

    def report(self) -> None:
        """Nothing to tell."""


def _facts(plan: Plan, model: Model, graph: ClientGraph) -> Facts:
    """What a site knows of its own clients; a fellow client is granted all that the server sees."""
    shares = not plan.aggregator.isolates
    compensated = shares and plan.estimator == "compensated"
    counts = graph.counts(graph.mask(Split.TRAIN)).double()
    batch = counts if plan.local.batch_size is None else torch.full_like(counts, plan.local.batch_size)
    everything = torch.ones(graph.num_clients, dtype=torch.float64)
    c = model.encoder.num_classes
    return Facts(
        entries={
            "hidden": c if shares else 0,
            "jacobian": c * model.encoder.num_weights if compensated else 0,
            "update": model.num_weights,
        },
        shared=graph.counts(graph.shared),
        rate=torch.where(counts > 0, (batch / counts.clamp_min(1)).clamp_max(1), 0.0),
        steps=plan.local.steps,
        leverage=everything,
        diluted=everything,
        signal=1.0,
        everyone_shares=True,
    )


def _with_gap(ledger: Ledger, gap: str) -> Ledger:
    return Ledger(**vars(ledger) | {"gaps": (*ledger.gaps, gap)})


def _counts(places: Sequence[int], of: int) -> Tensor:
    return torch.bincount(torch.tensor(list(places), dtype=torch.int64), minlength=of)
