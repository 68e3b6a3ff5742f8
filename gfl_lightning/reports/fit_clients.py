"""A fit at each client: what it gains there, who loses, and the graph to look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.names import Names
from gfl_lightning.reports.client_report import client_scores
from gfl_lightning.reports.figures import gain_by_size
from gfl_lightning.reports.gains import client_gains, loss_name
from gfl_lightning.reports.numerals import numeral
from gfl_lightning.reports.page.graph_view import GraphView
from gfl_lightning.reports.page.sections import Picture, Section, Table
from gfl_lightning.reports.rivals import Rivals
from gfl_lightning.reports.scores import own_level


@dataclass(frozen=True, eq=False)
class FitClients:
    """The clients of a fit.

    Args:
        graph: the client graph.
        names: of its clients.
        prediction: of every sample by the best model of the fit ``[S, c]``.
        rivals: other models, of which FedAvg is what a client would have without the graph.
    """

    graph: ClientGraph
    names: Names
    prediction: Tensor
    rivals: Rivals

    @property
    def score(self) -> str:
        """The score that clients are shown by."""
        return "mae" if self.graph.loss.of_numbers else "accuracy"

    @property
    def against(self) -> str:
        """What gains are measured against."""
        return "its own training labels, no feature" if self.rivals.fedavg is None else "FedAvg"

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each client that has test samples, in their order, with its number."""
        found = client_scores(self.graph, self.names, self.prediction)
        rows = self.graph.mask(Split.TEST)
        other = own_level(self.graph) if self.rivals.fedavg is None else self.rivals.fedavg
        gain, width = client_gains(self.graph, self.prediction, other, rows)
        number = self.graph.client[rows].cpu().unique().numpy()
        own = found[["client", "training_samples", "samples", self.score]]
        return own.assign(gain=gain.numpy()[number], interval=width.numpy()[number], number=number)

    def sections(self) -> list[Section]:
        """Gains against training rows, and the clients that lose, by name."""
        table, title = self.table, f"Gain of each client over {self.against}"
        if table.empty:
            return []
        losing = table[table["gain"] < 0].sort_values("gain", kind="stable")
        sure = int((-losing["gain"] > losing["interval"]).sum())
        figure = gain_by_size(table["training_samples"].to_numpy(), table["gain"].to_numpy(), loss_name(self.graph))
        note = (
            f"How much lower the {loss_name(self.graph)} of a client's test rows is. "
            f"{len(losing)} of {len(table)} clients lose; a 95 % interval of its own rows is below 0 at {sure} of them"
            + (f", and would be by chance alone at about {0.025 * len(table):.0f}." if len(table) >= 20 else ".")
        )
        sections: list[Section] = [Picture(title, figure, note)]
        shown = losing.drop(columns="number").assign(interval=[_plus_minus(one) for one in losing["interval"]])
        names = {"training_samples": "training rows", "samples": "test rows", "interval": "± 95 %"}
        return [*sections, Table("Clients that lose", shown.rename(columns=names))] if len(losing) else sections

    def graph_view(self) -> Section:
        """The client graph, with the numbers of each."""
        trained, owned = self.graph.counts(self.graph.mask(Split.TRAIN)).tolist(), self.graph.counts().tolist()
        own = [str(name) for name in self.names.clients]
        frame = pd.DataFrame({"client": own, "rows": owned, "training_rows": trained})
        for name in (self.score, "gain"):
            frame[name] = np.nan
            frame.loc[self.table["number"], name] = self.table[name].to_numpy()
        return GraphView("Client graph", self.graph, frame, self.score)


def _plus_minus(width: float) -> str:
    return "" if np.isnan(width) else f"± {numeral(width, 3)}"
