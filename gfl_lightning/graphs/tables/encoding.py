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
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfl_lightning.checks import InputError, require
from gfl_lightning.graphs.arrays import Array, Index
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.graphs.tables.features import Categories, Feature, Numbers
from gfl_lightning.graphs.tables.samples import Label
from gfl_lightning.graphs.tables.settings import Settings
from gfl_lightning.parts import build, describe

Mask = NDArray[np.bool_]
ENDLESS = (-math.inf, math.inf)

Levels = dict[str, Array]
"""Mean and deviation of each client's own values ``[N, 2]``, by feature."""


@dataclass(frozen=True)
class NumericCode:
    """(x − centre) / scale, with ``fill`` for a missing x, and a 0/1 column for missing ones if ``flagged``.

    An x below ``least`` or above ``most``, the ends of a range that is public, counts as that end.

    >>> ages = Numbers("age", np.array([30.0, 50.0, np.nan]))
    >>> NumericCode.fit(ages, np.array([True, True, False]), Settings())
    NumericCode(name='age', fill=40.0, centre=40.0, scale=10.0, flagged=False)
    """

    name: str
    fill: float
    centre: float
    scale: float
    flagged: bool
    least: float = field(default=-math.inf, repr=False)
    most: float = field(default=math.inf, repr=False)

    @classmethod
    def fit(cls, numbers: Numbers, train: Mask, settings: Settings) -> NumericCode:
        """Mean and deviation of the training rows that have a value; 0 and 1 where none has."""
        known = numbers.value[train & ~numbers.missing]
        mean = float(known.mean()) if len(known) else 0.0
        deviation = float(np.sqrt(np.square(known - mean).mean())) if len(known) else 0.0
        return cls.of(numbers.name, mean, deviation, bool(numbers.missing[train].any()), settings)

    @classmethod
    def of(cls, name: str, mean: float, deviation: float, some_missing: bool, settings: Settings) -> NumericCode:
        """From statistics of the training rows, wherever they come from."""
        shared = settings.scaling == "shared"
        scale = deviation if shared and deviation > 1e-12 * max(1.0, abs(mean)) else 1.0
        flagged = settings.missing == "indicator" and some_missing
        return cls(name, mean, mean if shared else 0.0, scale, flagged)

    @classmethod
    def within(cls, name: str, least: float, most: float, flagged: bool, settings: Settings) -> NumericCode:
        """By a range that is public: its middle and the deviation of values spread evenly over it."""
        spread = (most - least) / math.sqrt(12)
        made = cls.of(name, (least + most) / 2, spread, flagged, settings)
        return replace(made, least=least, most=most)

    @property
    def width(self) -> int:
        """Columns it becomes."""
        return 1 + self.flagged

    def write(self, numbers: Feature, x: NDArray[np.float32], client: Index, levels: Levels | None) -> None:
        """Fill its columns of x ``[S, width]``; by the clients' own ``levels`` instead of the shared ones, if given."""
        assert isinstance(numbers, Numbers)
        missing = numbers.missing
        if levels is not None:
            mean, deviation = levels[self.name].T[:, client]
            x[:, 0] = np.where(missing, 0, numbers.value - mean) / deviation
        else:
            value = np.clip(numbers.value, self.least, self.most)
            x[:, 0] = (np.where(missing, self.fill, value) - self.centre) / self.scale
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

    def write(self, found: Feature, x: NDArray[np.float32], client: Index, levels: Levels | None) -> None:
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
    """What a trained model must know of tables: settings, classes, codes of features of rows and of clients, the loss.

    >>> ages = Numbers("age", np.array([30.0, 50.0, 60.0]))
    >>> encoding = Encoding.fit(Settings(), ("ill", "well"), [ages], np.array([True, True, False]))
    >>> encoding.encode([ages], np.array([0, 0, 1])).tolist()
    [[-1.0], [1.0], [2.0]]
    """

    settings: Settings
    classes: tuple[Label, ...]
    codes: tuple[Code, ...]
    client_codes: tuple[Code, ...] = ()
    loss: Loss = CrossEntropy()  # noqa: RUF009  # frozen

    @classmethod
    def fit(
        cls,
        settings: Settings,
        classes: tuple[Label, ...],
        features: Sequence[Feature],
        train: Mask,
        client_features: Sequence[Feature] = (),
        training_clients: Mask | None = None,
        loss: Loss = CrossEntropy(),  # noqa: B008  # frozen
    ) -> Encoding:
        """Learn the codes from the training rows, and those of clients' features ``[N]`` from the training clients.

        A client cannot standardise its one value by itself: ``per_client`` scaling leaves clients' features shared.
        """
        codes = tuple(fitted(feature, train, settings) for feature in features)
        shared = replace(settings, scaling="shared") if settings.scaling == "per_client" else settings
        of_clients = tuple(fitted(feature, training_clients, shared) for feature in client_features)
        return cls(settings, classes, codes, of_clients, loss)

    @property
    def num_features(self) -> int:
        """d."""
        return sum(code.width for code in self.codes + self.client_codes)

    @property
    def trained(self) -> dict[str, type[Feature]]:
        """Kind of each feature of rows by name."""
        return kinds_of(self.codes)

    @property
    def trained_of_clients(self) -> dict[str, type[Feature]]:
        """Kind of each feature of clients by name."""
        return kinds_of(self.client_codes)

    def levels(self, features: Sequence[Feature], client: Index) -> Levels | None:
        """What clients standardise their own rows by, from the rows at hand; ``None`` where they do not."""
        if self.settings.scaling != "per_client":
            return None
        return {one.name: own_levels(one, client) for one in features if isinstance(one, Numbers)}

    def encode(
        self,
        features: Sequence[Feature],
        client: Index,
        client_features: Sequence[Feature] = (),
        levels: Levels | None = None,
    ) -> NDArray[np.float32]:
        """Features of the model ``[S, d]``: those of a row, then those of its client.

        Where clients standardise by themselves, ``levels`` are theirs; left out, they are those of the rows at hand.
        """
        x = write_codes(self.codes, features, client, self.levels(features, client) if levels is None else levels)
        if not self.client_codes:
            return x
        return np.concatenate([x, write_codes(self.client_codes, client_features, client)[client]], 1)

    def state(self) -> dict[str, Any]:
        """Plain containers, as a checkpoint holds them."""
        return {
            "settings": self.settings.state(),
            "classes": list(self.classes),
            "codes": [code_state(code) for code in self.codes],
            "client_codes": [code_state(code) for code in self.client_codes],
            "loss": describe(self.loss),
        }

    @classmethod
    def from_state(cls, state: Any, argument: str) -> Encoding:
        """From what :meth:`state` returned; anything else is refused."""
        try:
            for key, kind in (("settings", dict), ("classes", list), ("codes", list), ("client_codes", list)):
                require(isinstance(state[key], kind), key, f"be a {kind.__name__}", state[key])
            codes, of_clients = codes_of(state["codes"]), codes_of(state["client_codes"])
            classes = tuple(state["classes"])
            plain = all(isinstance(value, (str, int, float)) for value in classes)
            loss = build(state["loss"], Loss)  # type: ignore[type-abstract]
            enough = len(classes) == 1 if loss.of_numbers else len(classes) >= 2
            require(plain and enough, "classes", "be at least two texts or numbers", list(classes)[:5])
            return cls(Settings.from_state(state["settings"]), classes, codes, of_clients, loss)
        except (InputError, KeyError, TypeError, ValueError, AttributeError) as broken:
            raise InputError(f"{argument} must hold the encoding of a model, got {broken}.") from broken


def fitted(feature: Feature, train: Mask | None, settings: Settings) -> Code:
    """The code of a feature from the rows to learn from (``None``: all)."""
    train = np.ones(len(feature.missing), dtype=bool) if train is None else train
    if isinstance(feature, Numbers):
        return NumericCode.fit(feature, train, settings)
    return CategoryCode.fit(feature, train, settings)


def write_codes(
    codes: Sequence[Code], features: Sequence[Feature], client: Index, levels: Levels | None = None
) -> NDArray[np.float32]:
    """Features by their codes ``[rows, columns]``."""
    rows = len(features[0].missing) if features else len(client)
    x = np.zeros((rows, sum(code.width for code in codes)), dtype=np.float32)
    start = 0
    for code, feature in zip(codes, features, strict=True):
        code.write(feature, x[:, start : start + code.width], client, levels)
        start += code.width
    return x


def code_state(code: Code) -> dict[str, Any]:
    """A code as plain containers."""
    if isinstance(code, CategoryCode):
        return {"kind": "categorical", **asdict(code), "categories": list(code.categories)}
    return {"kind": "numeric", **{name: value for name, value in asdict(code).items() if value not in ENDLESS}}


def codes_of(states: Sequence[dict[str, Any]]) -> tuple[Code, ...]:
    """The codes that :func:`code_state` described."""
    return tuple(_code(**saved) for saved in states)


def kinds_of(codes: Sequence[Code]) -> dict[str, type[Feature]]:
    """Kind of each feature by name."""
    return {code.name: Numbers if isinstance(code, NumericCode) else Categories for code in codes}


def _code(kind: str, name: str, flagged: bool, **fields: Any) -> Code:
    """The code of a feature from plain values."""
    if kind == "categorical":
        categories = tuple(str(category) for category in fields.pop("categories"))
        return CategoryCode(str(name), categories, bool(flagged), **fields)
    require(kind == "numeric", "kind", "be numeric or categorical", kind)
    fill, centre, scale = (float(fields.pop(key)) for key in ("fill", "centre", "scale"))
    require(math.isfinite(fill + centre + scale) and scale > 0, name, "be scaled by finite numbers", (centre, scale))
    ends = {key: float(fields.pop(key)) for key in ("least", "most") if key in fields}
    return NumericCode(str(name), fill, centre, scale, bool(flagged), **ends, **fields)


def own_levels(numbers: Numbers, client: Index) -> Array:
    """Mean and deviation of each client's own values ``[N, 2]``; the deviation is 1 where they are all the same."""
    N, missing = int(client.max()) + 1, numbers.missing
    count = np.maximum(np.bincount(client[~missing], minlength=N), 1)
    mean = np.bincount(client, np.where(missing, 0, numbers.value), N) / count
    away = np.where(missing, 0, numbers.value - mean[client])
    deviation = np.sqrt(np.bincount(client, away**2, N) / count)
    varies = deviation > 1e-12 * np.maximum(1, np.abs(mean))
    return np.stack([mean, np.where(varies, deviation, 1)], 1)
