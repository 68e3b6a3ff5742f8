"""A fit among other models of the same samples: who is better, whether the graph helps, how new clients fare."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.reports.gains import Gain, gain_over, loss_name
from gfl_lightning.reports.numerals import numeral
from gfl_lightning.reports.page.sections import Section, Table, Text
from gfl_lightning.reports.rivals import FEDAVG, NO_FEATURE, Rivals
from gfl_lightning.reports.scores import baseline, own_level, scores

THIS = "this model"
OF_CLASSES = ("auroc", "accuracy", "balanced_accuracy", "log_loss", "calibration_error")
OF_NUMBERS = ("mae", "rmse", "r2", "spearman")


@dataclass(frozen=True, eq=False)
class FitMethods:
    """The table of models and what it says.

    Args:
        graph: the client graph.
        prediction: of every sample by the best model of the fit ``[S, c]``.
        rivals: other models.
    """

    graph: ClientGraph
    prediction: Tensor
    rivals: Rivals

    @cached_property
    def _rows(self) -> Tensor:
        return self.graph.mask(Split.TEST)

    @property
    def is_tested(self) -> bool:
        """Whether there are test samples."""
        return bool(self._rows.any())

    @property
    def verdict(self) -> str:
        """How good the model is against what one would say without looking, and whether it is the graph."""
        if not self.is_tested:
            return "There are no test rows, so nothing is known of how good the model is."
        found, base = (scores(self.graph, one, self._rows) for one in (self.prediction, baseline(self.graph)))
        if self.graph.loss.of_numbers:
            mine, mean = numeral(found["mae"]), numeral(base["mae"])
            text = f"The mean absolute error is {mine}; saying the mean every time makes {mean}."
        else:
            text = (
                f"{100 * found['accuracy']:.1f} % of test rows are right (AUROC {found['auroc']:.3f}); "
                f"saying the most frequent label every time is right on {100 * base['accuracy']:.1f} %."
            )
        return " ".join(one for one in (text, self.graph_sentence, self._beaten()) if one)

    @cached_property
    def graph_sentence(self) -> str:
        """Whether the graph helps; empty where nothing without one was trained."""
        fedavg = self.rivals.fedavg
        if fedavg is None or not self.is_tested:
            return ""
        gain = gain_over(self.graph, self.prediction, fedavg, self._rows)
        size = Gain(abs(gain.mean), gain.half_width)
        against = (
            f"its {loss_name(self.graph)} is {size} {'lower' if gain.mean >= 0 else 'higher'} than without neighbours"
        )
        if gain.is_sure:
            return f"The graph {'helps' if gain.mean > 0 else 'does harm'} here: {against}."
        return f"These test rows do not tell whether the graph helps: {against}."

    def _beaten(self) -> str:
        """The others that are surely better, the best first."""
        better = []
        for one in self.rivals.models:
            gain = gain_over(self.graph, self.prediction, one.prediction, self._rows)
            if gain.mean < 0 and gain.is_sure and one.title != FEDAVG:
                place = " (all rows in one place)" if one.in_one_place else ""
                better.append((gain.mean, one.title + place))
        return f"Better still: {'; '.join(title for _, title in sorted(better))}." if better else ""

    def table(self) -> Section:
        """A row for each model, with what this one gains over it."""
        if not self.is_tested:
            return Text("Methods", ["Without test rows nothing can be told of any."])
        shown = OF_NUMBERS if self.graph.loss.of_numbers else OF_CLASSES
        rows: list[dict[str, Any]] = [_row(THIS, self.graph, self.prediction, self._rows, shown) | {"gain": ""}]
        others = {_titled(one.title, one.in_one_place): one.prediction for one in self.rivals.models}
        others["a client's own training labels, no feature"] = own_level(self.graph)
        others[NO_FEATURE] = baseline(self.graph)
        for title, other in others.items():
            gain = gain_over(self.graph, self.prediction, other, self._rows)
            rows.append(_row(title, self.graph, other, self._rows, shown) | {"gain": str(gain)})
        frame = pd.DataFrame(rows).rename(columns={"gain": "this model gains"})
        note = [
            f"Test rows of one split. The last column is how much lower this model's {loss_name(self.graph)} is "
            "(± half of a 95 % interval over clients), negative where it is higher.",
            "* needs all rows in one place." if any(one.in_one_place for one in self.rivals.models) else "",
            "The others run with the settings of this model, which may suit them less." if self.rivals.models else "",
            self.rivals.missing,
            "Several splits, each method at its own rate, and shuffled edges: python -m gfl_lightning compare.",
        ]
        return Table("Methods", frame, " ".join(one for one in note if one))

    def new_clients(self) -> Section:
        """How models fare at clients that had no part in training."""
        title = "New clients"
        if self.rivals.joining is not None:
            return self._joined(title)
        graph = self.graph
        trains = graph.counts(graph.mask(Split.TRAIN)) > 0
        rows = self._rows & ~trains[graph.client]
        if not bool(rows.any()):
            text = "Nobody was left out of training to tell. python -m gfl_lightning compare leaves clients out."
            return Text(title, [text])
        shown = OF_NUMBERS if graph.loss.of_numbers else OF_CLASSES
        methods = {THIS: self.prediction, NO_FEATURE: baseline(graph)}
        frame = pd.DataFrame([_row(name, graph, one, rows, shown) for name, one in methods.items()])
        clients = len(graph.client[rows].unique())
        return Table(title, frame, f"{int(rows.sum())} test rows of {clients} clients without training rows.")

    def _joined(self, title: str) -> Section:
        joining = self.rivals.joining
        assert joining is not None
        shown = OF_NUMBERS if joining.graph.loss.of_numbers else OF_CLASSES
        clients = len(joining.graph.client[joining.rows].unique())
        table = [_row(name, joining.graph, one, joining.rows, shown) for name, one in joining.predictions.items()]
        note = (
            f"An estimate: {clients} clients were left out of a training of the same kind, and joined it with their "
            f"rows and edges but no label. Scores are of their {int(joining.rows.sum())} test rows."
            + (" * needs all rows in one place." if any(name.endswith("*") for name in joining.predictions) else "")
        )
        return Table(title, pd.DataFrame(table), note)


def _row(title: str, graph: ClientGraph, prediction: Tensor, rows: Tensor, shown: tuple[str, ...]) -> dict[str, Any]:
    found = scores(graph, prediction, rows)
    return {"method": title} | {name: found[name] for name in shown}


def _titled(title: str, in_one_place: bool) -> str:
    return f"{title} *" if in_one_place else title
