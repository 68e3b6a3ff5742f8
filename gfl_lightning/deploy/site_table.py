"""The table of one site: read where it lies, and told about in sums alone until the encoding is agreed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gfl_lightning.checks import require
from gfl_lightning.deploy.table_plan import TablePlan
from gfl_lightning.graphs.arrays import Index
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.names import Names
from gfl_lightning.graphs.tables.encoding import Encoding
from gfl_lightning.graphs.tables.features import Categories, Feature, Numbers, check_features, feature_kinds
from gfl_lightning.graphs.tables.network import shared_rows
from gfl_lightning.graphs.tables.problems import Problems
from gfl_lightning.graphs.tables.reading import Table
from gfl_lightning.graphs.tables.samples import Label, Samples, check_samples, label_values, read_samples
from gfl_lightning.graphs.tables.splits import split_rows

KINDS: Mapping[str, type[Feature]] = {"numeric": Numbers, "categorical": Categories}


@dataclass(frozen=True)
class SiteTable:
    """The samples of the clients of one site.

    Args:
        path: the file, with rows of these clients only.
        plan: how it is read.
        clients: names of the site's clients.
    """

    path: str
    plan: TablePlan
    clients: tuple[str, ...]

    @cached_property
    def table(self) -> Table:
        """The rows."""
        return read_samples(self.path, self.plan.settings, ())

    def columns(self) -> dict[str, Any]:
        """What the server must know first: the kind of each feature (none where all is empty) and label values.

        Where label values are public it is not told which of them there are.
        """
        problems = Problems()
        kinds = feature_kinds(self.table, self.plan.settings, problems)
        self._check_clients(problems)
        labels = list(label_values(self.table, self.plan.settings.label))
        if self.plan.classes:
            self._check_labels(labels, problems)
            labels = []
        problems.refuse()
        names = {kind: name for name, kind in KINDS.items()}
        features = {
            column: "numeric" if column in self.plan.ranges else names.get(kind)  # type: ignore[arg-type]
            for column, kind in kinds.items()
        }
        features |= dict.fromkeys(set(features) & set(self.plan.categories), "categorical")
        return {"features": features, "labels": labels}

    def read(self, features: Mapping[str, str], classes: Sequence[Label]) -> ReadTable:
        """The rows as the agreed features and classes, checked."""
        problems, settings = Problems(), self.plan.settings
        samples = check_samples(self.table, settings, tuple(classes), problems)
        kinds = {name: KINDS[kind] for name, kind in features.items()}
        found = check_features(self.table, list(kinds), settings, kinds, problems)
        problems.refuse()
        split = samples.split
        if split is None:
            alone = (
                f"be a column of {self.table.name} where the task is {settings.task}, as a site cannot draw it alone"
            )
            require(settings.task == "sc", "split", alone, None)
            split = split_rows(samples.client, samples.label, settings.fractions, np.random.default_rng(settings.seed))
        return ReadTable(self, samples, found, split)

    def _check_labels(self, found: Sequence[Label], problems: Problems) -> None:
        """Note labels that are not public; which of the public ones there are is not told."""
        known = {str(label) for label in self.plan.classes}
        for label in found:
            if str(label) not in known:
                told = ", ".join(map(str, self.plan.classes))
                problems.add(self.table.name, f"label {label!r} is none of the public classes {told}")

    def _check_clients(self, problems: Problems) -> None:
        """Note rows of clients of other sites, and clients without rows."""
        column = self.plan.settings.client
        owner = self.table.text(column)
        foreign = np.flatnonzero((~owner.isin(self.clients) & owner.notna()).to_numpy(dtype=bool))
        problems.add_rows(
            foreign,
            lambda row: f"{self.table.where(row)}, column {column!r}",
            lambda row: f"client {owner[row]!r} is none of this site's",
        )
        for name in sorted(set(self.clients) - set(owner.dropna().tolist())):
            problems.add(self.table.name, f"client {name!r} of this site has no rows")


@dataclass(frozen=True, eq=False)
class ReadTable:
    """The rows of a site as features and classes that all sites have agreed on.

    Args:
        source: where they were read.
        samples: owner, label and id of each row.
        features: their columns.
        split: of each row ``[S]``.
    """

    source: SiteTable
    samples: Samples
    features: list[Feature]
    split: Index

    @cached_property
    def _train(self) -> Any:
        return self.split == int(Split.TRAIN)

    def sums(self) -> dict[str, Any]:
        """What the encoding needs of the training rows: counts, sums and categories; nothing about public features."""
        plan = self.source.plan
        found: dict[str, dict[str, Any]] = {}
        for feature in self.features:
            known = self._train & ~feature.missing
            flags = plan.settings.missing == "indicator"
            some_missing = flags and bool(feature.missing[self._train].any())
            if feature.name in plan.ranges or feature.name in plan.categories:
                found[feature.name] = {"some_missing": some_missing}
            elif isinstance(feature, Numbers):
                values = feature.value[known]
                found[feature.name] = {"count": len(values), "sum": float(values.sum()), "some_missing": some_missing}
            else:
                seen = [feature.categories[code] for code in np.unique(feature.code[known])]
                found[feature.name] = {"categories": seen, "some_missing": some_missing}
        label, split = self.samples.label, self.split
        classes = np.bincount(label[self._train & (label >= 0)], minlength=len(self.samples.classes))
        rows = np.bincount(self.samples.client[self._train], minlength=len(self.source.clients))
        used = self.samples.client[self._train | (split == int(Split.VAL))]
        secret = bool(plan.classes) and plan.class_weights != "balanced"
        return {
            "features": found,
            "classes": [1] * len(classes) if secret else classes.tolist(),
            "training": dict(zip(self.source.clients, rows.tolist(), strict=True)),
            "validation": int((split == int(Split.VAL)).sum()),
            "most": int(np.bincount(used, minlength=1).max()),
        }

    def squares(self, means: Mapping[str, float]) -> dict[str, float]:
        """Σ (x − mean)² over the training rows that have a value, of each feature with a mean."""
        found = {}
        for feature in self.features:
            if isinstance(feature, Numbers) and feature.name in means:
                values = feature.value[self._train & ~feature.missing]
                found[feature.name] = float(np.square(values - means[feature.name]).sum())
        return found

    def graph(self, encoding: Encoding, class_weights: Sequence[float]) -> ClientGraph:
        """The site's own clients, numbered in the order of their names, without any edge between them."""
        rows = self.samples
        by_class = torch.tensor([*class_weights, 1.0], dtype=torch.float32)
        label = torch.from_numpy(rows.label)
        return ClientGraph(
            x=torch.from_numpy(encoding.encode(self.features, rows.client)),
            y=label,
            client=torch.from_numpy(rows.client),
            split=torch.from_numpy(self.split.astype(np.int8)),
            shared=torch.from_numpy(shared_rows(self.source.plan.settings.task, rows.client, self.split)),
            edge_index=torch.zeros(2, 0, dtype=torch.int64),
            num_classes=len(encoding.classes),
            weight=by_class[label],
        )

    def names(self, encoding: Encoding) -> Names:
        """What the table calls its clients, samples and classes."""
        return Names(self.samples.clients, self.samples.sample.tolist(), encoding.classes)
