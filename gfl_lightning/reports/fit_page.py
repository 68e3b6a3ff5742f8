"""The page on a fit: verdict, baselines, clients, data, curves, privacy, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torchmetrics.functional.classification import multiclass_confusion_matrix

from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.names import Names
from gfl_lightning.reports.client_report import client_scores
from gfl_lightning.reports.figures import (
    confusion_matrix,
    gain_by_size,
    loss_curves,
    predicted_against_true,
    reliability,
)
from gfl_lightning.reports.importance import importance
from gfl_lightning.reports.page.graph_view import GraphView
from gfl_lightning.reports.page.page import Page
from gfl_lightning.reports.page.sections import Facts, Picture, Section, Table, Text
from gfl_lightning.reports.scores import BETTER_IF_HIGHER, baseline, own_level, scores
from gfl_lightning.reports.screen import part_text

LAST_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class FitPage:
    """What the page is made of.

    Args:
        summary: the record of the fit.
        graph: the client graph.
        names: of its clients, samples and classes.
        prediction: of every sample by the best model ``[S, c]``.
        curve: training and validation loss of each round.
        features: columns of x by the name of their feature.
        predict: outputs of the best model on a graph.
        edges: what is known of the edges' signal, a sentence; empty where nobody asked.
        command: that repeats the fit.
    """

    summary: Mapping[str, Any]
    graph: ClientGraph
    names: Names
    prediction: Tensor
    curve: Sequence[tuple[float, float]]
    features: Mapping[str, slice]
    predict: Callable[[ClientGraph], Tensor]
    edges: str
    command: str

    def page(self) -> Page:
        """The whole of it."""
        sections = [
            self._methods(),
            *self._clients(),
            self._data(),
            self._new_clients(),
            *self._errors(),
            self._loss(),
            *self._importance(),
            self._graph(),
            self._privacy(),
            self._settings(),
        ]
        return Page(f"{self.summary['model']} on {self.summary['data']}", self.verdict, sections)

    @property
    def score(self) -> str:
        """The score that clients are told apart by."""
        return "mae" if self.graph.loss.of_numbers else "accuracy"

    @property
    def verdict(self) -> str:
        """How good it is against what one would say without looking."""
        rows = self.graph.mask(Split.TEST)
        if not bool(rows.any()):
            return "There are no test samples, so nothing is known of how good the model is."
        found, base = (scores(self.graph, one, rows) for one in (self.prediction, baseline(self.graph)))
        if self.graph.loss.of_numbers:
            text = f"The mean absolute error is {found['mae']:.4g}; saying the mean every time makes {base['mae']:.4g}."
        else:
            text = (
                f"{100 * found['accuracy']:.1f} % of test samples are right (AUROC {found['auroc']:.3f}); "
                f"saying the most frequent label every time is right on {100 * base['accuracy']:.1f} %."
            )
        return f"{text} {self.edges[:1].upper()}{self.edges[1:]}." if self.edges else text

    def _methods(self) -> Section:
        rows = self.graph.mask(Split.TEST)
        methods = {
            "this model": self.prediction,
            "each client's own training labels": own_level(self.graph),
            "all clients' training labels": baseline(self.graph),
        }
        table = [{"method": name} | scores(self.graph, found, rows) for name, found in methods.items()]
        note = (
            "Test samples. The two baselines look at no feature. FedAvg, isolated and pooled models, shuffled edges "
            "and intervals over seeds: python -m gfl_lightning compare."
        )
        return Table("Methods", pd.DataFrame(table), note)

    def _client_table(self) -> pd.DataFrame:
        """Scores of the clients that have test samples, and the gain on what each one's own labels say."""
        found = client_scores(self.graph, self.names, self.prediction)
        base = client_scores(self.graph, self.names, own_level(self.graph))
        sign = 1 if self.score in BETTER_IF_HIGHER else -1
        return found.assign(gain=sign * (found[self.score] - base[self.score]))

    def _clients(self) -> list[Section]:
        table = self._client_table()
        if table.empty:
            return []
        losing = table[table["gain"] < 0].sort_values("gain", kind="stable")
        columns = ["client", "training_samples", "samples", self.score, "gain"]
        note = (
            f"Gain in {self.score.replace('_', ' ')} over saying the most frequent of a client's own training labels "
            f"(or their mean). {len(losing)} of {len(table)} clients lose."
        )
        figure = gain_by_size(table["training_samples"].to_numpy(), table["gain"].to_numpy(), self.score)
        sections: list[Section] = [Picture("Gain of each client", figure, note)]
        return [*sections, Table("Clients that lose", losing[columns])] if len(losing) else sections

    def _data(self) -> Section:
        graph = self.graph
        A = adjacency_matrix(graph.edge_index.cpu().numpy(), graph.num_clients)
        count, member = connected_components(A, directed=False)
        known = graph.split != int(Split.NONE)
        facts: dict[str, Any] = {
            "clients": f"{graph.num_clients}, {len(graph.training_clients)} of them with training samples",
            "samples": f"{graph.num_samples}: "
            + ", ".join(f"{part.name.lower()} {int(graph.mask(part).sum())}" for part in list(Split)[1:])
            + f", unlabelled {int((~known).sum())}",
            "edges": graph.num_edges,
            "components": f"{count}, {int((np.bincount(member) == 1).sum())} of them a single client",
            "features of the model": graph.num_features,
        }
        if graph.loss.of_numbers:
            y = graph.y[known]
            facts["labels"] = f"mean {float(y.mean()):.4g}, deviation {float(y.std()):.4g}"
        else:
            shares = torch.bincount(graph.y[known], minlength=graph.num_classes) / max(1, int(known.sum()))
            named = zip(self.names.classes, shares.tolist(), strict=True)
            facts["balance"] = ", ".join(f"{name}: {100 * share:.1f} %" for name, share in named)
        return Facts("Data", facts)

    def _new_clients(self) -> Section:
        graph = self.graph
        trains = graph.counts(graph.mask(Split.TRAIN)) > 0
        rows = graph.mask(Split.TEST) & ~trains[graph.client]
        if not bool(rows.any()):
            text = "Every client with test samples has trained. `compare` leaves clients out to estimate new ones."
            return Text("New clients", [text])
        found = scores(graph, self.prediction, rows)
        clients = len(graph.client[rows].unique())
        return Facts(
            "New clients", {"clients that did not train": clients, "their test samples": int(rows.sum())} | found
        )

    def _errors(self) -> list[Section]:
        rows = self.graph.mask(Split.TEST)
        label, found = self.graph.y[rows], self.prediction[rows]
        if not len(label):
            return []
        if self.graph.loss.of_numbers:
            return [Picture("Predicted against true", predicted_against_true(label, found[:, 0]))]
        counts = multiclass_confusion_matrix(found.argmax(1), label, self.graph.num_classes)
        return [
            Picture("Confusion matrix", confusion_matrix(counts, [str(name) for name in self.names.classes])),
            Picture("Reliability", reliability(found, label), "On the diagonal, probabilities are what they say."),
        ]

    def _loss(self) -> Section:
        train, val = zip(*self.curve, strict=True)
        figure = loss_curves(
            range(1, len(self.curve) + 1), {"train": train, "validation": val}, self.best_round or None
        )
        return Picture("Loss", figure, self.convergence)

    @property
    def best_round(self) -> int:
        """The round that was kept."""
        return int(self.summary["best_round"])

    @property
    def convergence(self) -> str:
        """Whether more rounds would help; a guarantee keeps the last round whatever its loss."""
        rounds = int(self.summary["rounds"])
        if self.summary["privacy"] is not None:
            return f"The round that was kept is {self.best_round} of {rounds}."
        if self.best_round > (1 - LAST_SHARE) * rounds:
            return f"Still improving: the best round is {self.best_round} of {rounds}. Train longer."
        return f"Converged: the best round is {self.best_round} of {rounds}."

    def _importance(self) -> list[Section]:
        table = importance(self.graph, self.features, self.predict)
        note = "The values of a feature are dealt out anew among test rows; nothing is trained anew."
        return [Table("Importance of features", table, note)] if len(table) else []

    def _graph(self) -> Section:
        graph, table = self.graph, self._client_table().set_index("client")
        trained, owned = graph.counts(graph.mask(Split.TRAIN)).tolist(), graph.counts().tolist()
        own = [str(name) for name in self.names.clients]
        frame = pd.DataFrame({"client": own, "rows": owned, "training_rows": trained})
        scored = table[self.score].copy()
        scored.index = scored.index.map(str)
        frame[self.score] = scored.reindex(own).to_numpy()
        return GraphView("Client graph", graph, frame, self.score)

    def _privacy(self) -> Section:
        privacy = self.summary["privacy"]
        if privacy is None:
            return Text("Privacy", ["No guarantee: uploads are neither bounded nor noisy."])
        return Text("Privacy", [str(privacy["sentence"]), str(privacy["scope"])])

    def _settings(self) -> Section:
        parts = {role: part_text(part) for role, part in self.summary["parts"].items()}
        versions = ", ".join(f"{name} {number}" for name, number in self.summary["versions"].items())
        return Facts("Settings", {**parts, "seed": self.summary["seed"], "versions": versions, "repeat": self.command})
