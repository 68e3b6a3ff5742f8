"""How a row becomes the features of the model: fitted on training rows, saved with the model, used on any rows.

``shared`` statistics are those of all training rows together. In a federation they take two exchanges of sums: each
training client sends, for every numeric feature, how many values it has and their sum; the server returns the mean;
each sends Σ (x − mean)²; the server returns the deviation. It also sends the set of its categories and gets their
union. With ``per_client`` scaling a client uses the mean and deviation of all rows that it has in the table, and
tells nobody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfl_lightning.checks import InputError, require
from gfl_lightning.graphs.arrays import Array, Index
from gfl_lightning.graphs.tables.features import Categories, Feature, Numbers
from gfl_lightning.graphs.tables.samples import Label
from gfl_lightning.graphs.tables.settings import Settings

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class NumericCode:
    """(x − centre) / scale, with ``fill`` for a missing x, and a 0/1 column for missing ones if ``flagged``.

    >>> ages = Numbers("age", np.array([30.0, 50.0, np.nan]))
    >>> NumericCode.fit(ages, np.array([True, True, False]), Settings())
    NumericCode(name='age', fill=40.0, centre=40.0, scale=10.0, flagged=False)
    """

    name: str
    fill: float
    centre: float
    scale: float
    flagged: bool

    @classmethod
    def fit(cls, numbers: Numbers, train: Mask, settings: Settings) -> NumericCode:
        """Mean and deviation of the training rows that have a value; 0 and 1 where none has."""
        known = numbers.value[train & ~numbers.missing]
        mean = float(known.mean()) if len(known) else 0.0
        deviation = float(np.sqrt(np.square(known - mean).mean())) if len(known) else 0.0
        flagged = settings.missing == "indicator" and bool(numbers.missing[train].any())
        shared = settings.scaling == "shared"
        scale = deviation if shared and deviation > 1e-12 * max(1.0, abs(mean)) else 1.0
        return cls(numbers.name, mean, mean if shared else 0.0, scale, flagged)

    @property
    def width(self) -> int:
        """Columns it becomes."""
        return 1 + self.flagged

    def write(self, numbers: Feature, x: NDArray[np.float32], client: Index, per_client: bool) -> None:
        """Fill its columns of x ``[S, width]``."""
        assert isinstance(numbers, Numbers)
        missing = numbers.missing
        if per_client:
            x[:, 0] = _standardised(numbers.value, missing, client)
        else:
            x[:, 0] = (np.where(missing, self.fill, numbers.value) - self.centre) / self.scale
        if self.flagged:
            x[:, 1] = missing


@dataclass(frozen=True)
class CategoryCode:
    """A 0/1 column for each category that training rows have; none of them for others and for missing ones.

    >>> wards = Categories("ward", np.array([0, 2, 1]), ["A", "B", "C"])
    >>> CategoryCode.fit(wards, np.array([True, True, False]), Settings()).categories
    ('A', 'C')
    """

    name: str
    categories: tuple[str, ...]
    flagged: bool

    @classmethod
    def fit(cls, found: Categories, train: Mask, settings: Settings) -> CategoryCode:
        """The categories of the training rows."""
        seen = np.unique(found.code[train & ~found.missing])
        flagged = settings.missing == "indicator" and bool(found.missing[train].any())
        return cls(found.name, tuple(found.categories[code] for code in seen), flagged)

    @property
    def width(self) -> int:
        """Columns it becomes."""
        return len(self.categories) + self.flagged

    def write(self, found: Feature, x: NDArray[np.float32], client: Index, per_client: bool) -> None:
        """Fill its columns of x ``[S, width]``."""
        assert isinstance(found, Categories)
        place = {category: i for i, category in enumerate(self.categories)}
        column = np.array([place.get(category, -1) for category in found.categories] + [-1])[found.code]
        rows = np.flatnonzero(column >= 0)
        x[rows, column[rows]] = 1
        if self.flagged:
            x[:, len(self.categories)] = found.missing


Code = NumericCode | CategoryCode


@dataclass(frozen=True)
class Encoding:
    """What a trained model must know of tables: settings, classes, and the code of each feature.

    >>> ages = Numbers("age", np.array([30.0, 50.0, 60.0]))
    >>> encoding = Encoding.fit(Settings(), ("ill", "well"), [ages], np.array([True, True, False]))
    >>> encoding.encode([ages], np.array([0, 0, 1])).tolist()
    [[-1.0], [1.0], [2.0]]
    """

    settings: Settings
    classes: tuple[Label, ...]
    codes: tuple[Code, ...]

    @classmethod
    def fit(cls, settings: Settings, classes: tuple[Label, ...], features: Sequence[Feature], train: Mask) -> Encoding:
        """Learn the codes from the training rows."""
        codes: list[Code] = [
            NumericCode.fit(feature, train, settings)
            if isinstance(feature, Numbers)
            else CategoryCode.fit(feature, train, settings)
            for feature in features
        ]
        return cls(settings, classes, tuple(codes))

    @property
    def num_features(self) -> int:
        """d."""
        return sum(code.width for code in self.codes)

    @property
    def trained(self) -> dict[str, type[Feature]]:
        """Kind of each feature by name."""
        return {code.name: Numbers if isinstance(code, NumericCode) else Categories for code in self.codes}

    def encode(self, features: Sequence[Feature], client: Index) -> NDArray[np.float32]:
        """Features of the model ``[S, d]``."""
        x = np.zeros((len(client), self.num_features), dtype=np.float32)
        start = 0
        for code, feature in zip(self.codes, features, strict=True):
            code.write(feature, x[:, start : start + code.width], client, self.settings.scaling == "per_client")
            start += code.width
        return x

    def state(self) -> dict[str, Any]:
        """Plain containers, as a checkpoint holds them."""
        codes = [
            {"kind": "categorical", **asdict(code), "categories": list(code.categories)}
            if isinstance(code, CategoryCode)
            else {"kind": "numeric", **asdict(code)}
            for code in self.codes
        ]
        return {"settings": self.settings.state(), "classes": list(self.classes), "codes": codes}

    @classmethod
    def from_state(cls, state: Any, argument: str) -> Encoding:
        """From what :meth:`state` returned; anything else is refused."""
        try:
            for key, kind in (("settings", dict), ("classes", list), ("codes", list)):
                require(isinstance(state[key], kind), key, f"be a {kind.__name__}", state[key])
            codes = tuple(_code(**saved) for saved in state["codes"])
            classes = tuple(state["classes"])
            plain = all(isinstance(value, (str, int, float)) for value in classes)
            require(plain and len(classes) >= 2, "classes", "be at least two texts or numbers", list(classes)[:5])
            return cls(Settings.from_state(state["settings"]), classes, codes)
        except (InputError, KeyError, TypeError, ValueError, AttributeError) as broken:
            raise InputError(f"{argument} must hold the encoding of a model, got {broken}.") from broken


def _code(kind: str, name: str, flagged: bool, **fields: Any) -> Code:
    """The code of a feature from plain values."""
    if kind == "categorical":
        categories = tuple(str(category) for category in fields.pop("categories"))
        return CategoryCode(str(name), categories, bool(flagged), **fields)
    require(kind == "numeric", "kind", "be numeric or categorical", kind)
    fill, centre, scale = (float(fields.pop(key)) for key in ("fill", "centre", "scale"))
    require(math.isfinite(fill + centre + scale) and scale > 0, name, "be scaled by finite numbers", (centre, scale))
    return NumericCode(str(name), fill, centre, scale, bool(flagged), **fields)


def _standardised(value: Array, missing: Mask, client: Index) -> Array:
    """(x − mean_k) / deviation_k by client; 0 where x is missing or all that a client has is the same."""
    N = int(client.max()) + 1
    known = np.where(missing, 0, value)
    count = np.maximum(np.bincount(client[~missing], minlength=N), 1)
    mean = np.bincount(client, known, N) / count
    away = np.where(missing, 0, value - mean[client])
    deviation = np.sqrt(np.bincount(client, away**2, N) / count)
    varies = deviation > 1e-12 * np.maximum(1, np.abs(mean))
    return away / np.where(varies, deviation, 1)[client]
