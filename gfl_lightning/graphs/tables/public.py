"""What is public about tables, so that nothing of their rows need be told to encode them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gfl_lightning.checks import require
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.graphs.losses.numbers import NumberLoss
from gfl_lightning.graphs.tables.encoding import CategoryCode, Code, Encoding, NumericCode
from gfl_lightning.graphs.tables.samples import Label
from gfl_lightning.graphs.tables.settings import Settings


@dataclass(frozen=True)
class PublicColumns:
    """Ranges, categories and classes that everybody may know, in place of statistics of the rows.

    A number is scaled by its range: its middle becomes 0, and values spread evenly over it have deviation 1. A missing
    one counts as the middle, one outside as the nearer end. Categories that are not listed count as missing. Columns
    that are named here are the features.

    >>> code = PublicColumns({"age": [0.0, 120.0]}, classes=["ill", "well"]).codes(Settings())[0]
    >>> code.centre, round(code.scale, 2)
    (60.0, 34.64)

    Args:
        ranges: least and largest value of each numeric feature.
        categories: values of each categorical feature.
        classes: the label values, where they are classes.
        labels: least and largest label, where they are numbers: it says on what scale they are learned.
    """

    ranges: dict[str, list[float]] = field(default_factory=dict)
    categories: dict[str, list[str]] = field(default_factory=dict)
    classes: list[Label] = field(default_factory=list)
    labels: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, ends in self.ranges.items():
            _require_range(f"ranges.{name}", ends)
        for name, values in self.categories.items():
            require(
                len(set(values)) == len(values) > 0, f"categories.{name}", "be different values, at least one", values
            )
        both = sorted(set(self.ranges) & set(self.categories))
        require(not both, "ranges and categories", "share no column", both)
        require(bool(self.ranges or self.categories), "public", "name a range or categories of some column", self)
        different = len({str(value) for value in self.classes}) == len(self.classes)
        if not self.labels:
            require(different and len(self.classes) >= 2, "classes", "be at least two different values", self.classes)
            return
        _require_range("labels", self.labels)
        require(not self.classes, "classes", "be left out where labels are numbers of a range", self.classes)

    def check(self, settings: Settings, loss: Loss) -> None:
        """Refuse tables whose encoding would take more than is public."""
        rule = "be a range where the loss is one of numbers (public.labels: [least, largest]), and left out elsewhere"
        require(loss.of_numbers == bool(self.labels), "labels", rule, self.labels)
        own = settings.scaling == "per_client"
        require(
            not own,
            "scaling",
            "be shared or none where columns are public, as rows would scale each other",
            "per_client",
        )
        columns = {*self.ranges, *self.categories}
        same = settings.features is None or set(settings.features) == columns
        require(same, "features", "be left out or be the columns that are public", sorted(settings.features or ()))
        require(
            not settings.client_features,
            "client_features",
            "be left out where columns are public",
            settings.client_features,
        )

    def codes(self, settings: Settings) -> tuple[Code, ...]:
        """The codes of the columns, by what is public alone: a column for missing values is there whether any is."""
        flagged = settings.missing == "indicator"
        numbers: list[Code] = [
            NumericCode.within(name, float(low), float(high), flagged, settings)
            for name, (low, high) in self.ranges.items()
        ]
        return (*numbers, *(CategoryCode(name, tuple(values), flagged) for name, values in self.categories.items()))

    def encoding(self, settings: Settings, loss: Loss) -> Encoding:
        """The encoding."""
        self.check(settings, loss)
        if not isinstance(loss, NumberLoss):
            return Encoding(settings, tuple(self.classes), self.codes(settings), loss=loss)
        return Encoding(settings, (settings.label,), self.codes(settings), loss=loss.within(*self.labels))


def _require_range(name: str, ends: list[float]) -> None:
    fits = len(ends) == 2 and all(isinstance(end, (int, float)) and math.isfinite(end) for end in ends)
    require(fits and ends[0] < ends[1], name, "be two numbers, the smaller one first", list(ends))
