"""The page on a fit: verdict, other models, clients, data, curves, privacy, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor
from torchmetrics.functional.classification import multiclass_confusion_matrix

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.names import Names
from gfl_lightning.reports.figures import confusion_matrix, loss_curves, predicted_against_true, reliability
from gfl_lightning.reports.fit_clients import FitClients
from gfl_lightning.reports.fit_data import data_facts
from gfl_lightning.reports.fit_methods import FitMethods
from gfl_lightning.reports.fit_privacy import privacy_facts
from gfl_lightning.reports.importance import importance
from gfl_lightning.reports.page.page import Page
from gfl_lightning.reports.page.sections import Facts, Picture, Section, Table, Text
from gfl_lightning.reports.rivals import Rivals
from gfl_lightning.reports.screen import OF_PRIVACY, USUAL, part_text

LAST_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class FitPage:
    """What the page is made of.

    Args:
        title: of the page.
        summary: the record of the fit.
        graph: the client graph.
        names: of its clients, samples and classes.
        prediction: of every sample by the best model ``[S, c]``.
        rivals: other models of the same samples.
        curve: training and validation loss of each round.
        features: columns of x by the name of their feature.
        missing: how many cells of a feature are missing, by its name.
        predict: class probabilities or numbers by the best model on a graph of the same clients.
        edges: what is known of the edges' signal, a sentence; empty where nobody asked.
        command: that repeats the fit.
    """

    title: str
    summary: Mapping[str, Any]
    graph: ClientGraph
    names: Names
    prediction: Tensor
    rivals: Rivals
    curve: Sequence[tuple[float, float]]
    features: Mapping[str, slice]
    missing: Mapping[str, int]
    predict: Callable[[ClientGraph], Tensor]
    edges: str
    command: str

    def page(self) -> Page:
        """The whole of it."""
        sections = [
            self.methods.table(),
            *([self._signal()] if self.edges else []),
            *self.clients.sections(),
            self.methods.new_clients(),
            Facts("Data", data_facts(self.graph, self.names, self.missing)),
            *self._errors(),
            self._loss(),
            *self._importance(),
            self.clients.graph_view(),
            self._privacy(),
            self._settings(),
        ]
        return Page(self.title, self.methods.verdict, sections)

    @cached_property
    def methods(self) -> FitMethods:
        """The model among others."""
        return FitMethods(self.graph, self.prediction, self.rivals)

    @cached_property
    def clients(self) -> FitClients:
        """The model at each client."""
        return FitClients(self.graph, self.names, self.prediction, self.rivals)

    def _signal(self) -> Section:
        told = f"{self.edges[:1].upper()}{self.edges[1:]}."
        return Text("Do the edges carry signal?", [f"{told} (Found in the training rows, before training.)"])

    def _errors(self) -> list[Section]:
        rows = self.graph.mask(Split.TEST)
        label, found = self.graph.y[rows].cpu(), self.prediction[rows].cpu()
        if not len(label):
            return []
        if self.graph.loss.of_numbers:
            note = (
                "Left: on the line, predictions are right. Right: what is left over should not hang on the prediction."
            )
            return [Picture("Predictions and residuals", predicted_against_true(label, found[:, 0]), note)]
        counts = multiclass_confusion_matrix(found.argmax(1), label, self.graph.num_classes)
        note = "On the diagonal, probabilities are what they say. Bars are 95 % intervals of the share that is right."
        return [
            Picture("Confusion matrix", confusion_matrix(counts, [str(name) for name in self.names.classes])),
            Picture("Reliability", reliability(found, label), note),
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
        note = (
            "How much worse test rows are predicted when the values of one feature are dealt out anew among them "
            "(± half of a 95 % interval over clients); nothing is trained anew. Features that say the same share it."
        )
        return [Table("Importance of features", table, note)] if len(table) else []

    def _privacy(self) -> Section:
        privacy = self.summary["privacy"]
        if privacy is None:
            return Text("Privacy", ["No guarantee: uploads are neither bounded nor noisy."])
        return Facts("Privacy", privacy_facts(privacy))

    def _settings(self) -> Section:
        inert = () if self.summary["privacy"] is not None else OF_PRIVACY
        parts = {role: part_text(part) for role, part in self.summary["parts"].items() if role not in inert}
        parts = {role: text for role, text in parts.items() if text not in USUAL}
        versions = ", ".join(f"{name} {number}" for name, number in self.summary["versions"].items())
        model = str(self.summary["model"])
        return Facts(
            "Settings",
            {"model": model, **parts, "seed": self.summary["seed"], "versions": versions, "repeat": self.command},
        )
