"""How every site reads its table, and what is agreed or public about it beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gfl_lightning.checks import require
from gfl_lightning.graphs.class_weights import ClassWeights, check_class_weights
from gfl_lightning.graphs.tables.settings import Settings


@dataclass(frozen=True)
class TablePlan:
    """Settings of the tables, and what is public about their columns so that no statistics of it need be exchanged.

    >>> TablePlan(Settings(), ranges={"age": (0.0, 120.0)}).ranges["age"]
    (0.0, 120.0)

    Args:
        settings: how tables are read.
        class_weights: of the loss.
        ranges: least and largest value of numeric features; they are then scaled by their range.
        categories: of categorical features.
        classes: the label values.
    """

    settings: Settings
    class_weights: ClassWeights = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: tuple[str | int | float | bool, ...] = ()

    def __post_init__(self) -> None:
        check_class_weights(self.class_weights)
        by = self.settings.split_by
        require(by is None, "split_by", "be left out, as no site knows the others' times; give a split column", by)
        for name, ends in self.ranges.items():
            fits = len(ends) == 2 and all(isinstance(end, (int, float)) and math.isfinite(end) for end in ends)
            require(fits and ends[0] < ends[1], f"ranges.{name}", "be two numbers, the smaller one first", list(ends))
        both = sorted(set(self.ranges) & set(self.categories))
        require(not both, "ranges and categories", "share no column", both)
        clients = self.settings.client_features
        require(not clients, "client_features", "be left out of a deployment", clients)
        require(len(self.classes) != 1, "classes", "be at least two", list(self.classes))

    def tells_statistics(self, features: Iterable[str]) -> bool:
        """Whether sites tell more of these features and of their labels than how many rows they have."""
        public = {*self.ranges, *self.categories}
        whole = set(features) <= public and bool(self.classes) and self.settings.missing != "indicator"
        return not whole or self.class_weights == "balanced"

    def state(self) -> dict[str, Any]:
        """Plain containers."""
        return {
            "settings": self.settings.state(),
            "class_weights": self.class_weights,
            "ranges": {name: list(ends) for name, ends in self.ranges.items()},
            "categories": {name: list(values) for name, values in self.categories.items()},
            "classes": list(self.classes),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TablePlan:
        """From what :meth:`state` returned."""
        return cls(
            Settings.from_state(state["settings"]),
            state["class_weights"],
            {name: (float(low), float(high)) for name, (low, high) in state["ranges"].items()},
            {name: tuple(map(str, values)) for name, values in state["categories"].items()},
            tuple(state["classes"]),
        )
