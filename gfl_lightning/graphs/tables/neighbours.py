"""Edges from profiles: every client is connected to the k clients that are nearest by public attributes or place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch

from gfl_lightning.checks import require, require_count
from gfl_lightning.graphs.arrays import Array, Index
from gfl_lightning.graphs.tables.encoding import Code, code_state, codes_of, fitted, kinds_of, write_codes
from gfl_lightning.graphs.tables.features import Feature, Numbers
from gfl_lightning.graphs.tables.nearest import nearest, nearest_others
from gfl_lightning.graphs.tables.problems import Problems
from gfl_lightning.graphs.tables.settings import Settings

Distance = Literal["profile", "plane", "globe"]


@dataclass(frozen=True)
class NeighbourRule:
    """Client k is connected to its ``neighbours`` nearest clients j: those with the smallest ‖p_k − p_j‖.

    >>> NeighbourRule(5, ("income", "region")).distance
    'profile'

    Args:
        neighbours: how many.
        near: the columns of the table of clients that distances are measured by; ``None`` means all.
        distance: of ``profile`` numbers are standardised and categories become 0/1 columns; ``plane`` takes numbers as
            they are; ``globe`` takes latitude and longitude in degrees.
    """

    neighbours: int
    near: tuple[str, ...] | None = None
    distance: Distance = "profile"

    def __post_init__(self) -> None:
        require_count("neighbours", self.neighbours)
        kinds = get_args(Distance)
        require(self.distance in kinds, "distance", f"be one of {', '.join(kinds)}", self.distance)
        named = self.near
        if named is not None:
            require(len(set(named)) == len(named) > 0, "near", "name at least one column, each once", list(named))
        two = named is not None and len(named) == 2
        require(
            self.distance != "globe" or two,
            "near",
            "name two columns, latitude and longitude, where distance is globe",
            None if named is None else list(named),
        )

    def state(self) -> dict[str, Any]:
        """Plain containers."""
        near = None if self.near is None else list(self.near)
        return {"neighbours": self.neighbours, "near": near, "distance": self.distance}


@dataclass(frozen=True, eq=False)
class Profiles:
    """Where the clients of a network stand: points p ``[N, columns]`` and the codes that make them of a table.

    >>> income = Numbers("income", np.array([1.0, 2.0, 9.0]))
    >>> profiles = Profiles.of(NeighbourRule(1), [income])
    >>> profiles.edges().tolist()
    [[0, 1, 2], [1, 0, 1]]
    >>> profiles.nearest_to(profiles.points_of([Numbers("income", np.array([8.0]))])).tolist()
    [[2]]
    """

    rule: NeighbourRule
    codes: tuple[Code, ...]
    points: Array

    @property
    def kinds(self) -> dict[str, type[Feature]]:
        """The columns that points are made of, and their kinds."""
        if self.rule.distance == "profile":
            return kinds_of(self.codes)
        return dict.fromkeys(self.rule.near or (), Numbers)

    @classmethod
    def of(cls, rule: NeighbourRule, features: Sequence[Feature]) -> Profiles:
        """Fit the codes to the clients' features, a row each."""
        everyone = np.ones(len(features[0].missing), dtype=bool)
        measured = features if rule.distance == "profile" else ()
        codes = tuple(fitted(feature, everyone, Settings()) for feature in measured)
        return cls(rule, codes, _points(rule, codes, features))

    def points_of(self, features: Sequence[Feature]) -> Array:
        """Where other clients stand."""
        return _points(self.rule, self.codes, features)

    def edges(self) -> Index:
        """Ends ``[2, N k]``: each client and its nearest ones; a pair may stand in both directions."""
        N, k = len(self.points), self.rule.neighbours
        require(k < N, "neighbours", f"be below the number of clients ({N})", k)
        return np.stack([np.repeat(np.arange(N), k), nearest_others(self.points, k).ravel()])

    def nearest_to(self, points: Array) -> Index:
        """The k nearest clients of the network to each of some points ``[n, k]``."""
        return nearest(self.points, points, min(self.rule.neighbours, len(self.points)))

    def state(self) -> dict[str, Any]:
        """Plain containers, as a checkpoint holds them."""
        codes = [code_state(code) for code in self.codes]
        return {"rule": self.rule.state(), "codes": codes, "points": torch.from_numpy(self.points)}

    @classmethod
    def from_state(cls, state: Any) -> Profiles:
        """From what :meth:`state` returned; anything else raises what ``Encoding.from_state`` turns into a refusal."""
        near = state["rule"]["near"]
        rule = NeighbourRule(**{**state["rule"], "near": None if near is None else tuple(near)})
        points = state["points"].double().numpy()
        require(points.ndim == 2 and bool(np.isfinite(points).all()), "points", "be a table of numbers", points.shape)
        return cls(rule, codes_of(state["codes"]), points)


def check_places(rule: NeighbourRule, features: Sequence[Feature], name: str, problems: Problems) -> None:
    """Note columns that distances cannot be measured by."""
    for feature in features if rule.distance != "profile" else ():
        where = f"{name} column {feature.name!r}"
        if not isinstance(feature, Numbers):
            problems.add(where, f"places must be numbers where distance is {rule.distance}")
        elif feature.missing.any():
            problems.add(where, f"{int(feature.missing.sum())} clients have no value, which a place needs")
    if rule.distance == "globe" and all(isinstance(feature, Numbers) for feature in features):
        for feature, limit in zip(features, (90, 180), strict=True):
            assert isinstance(feature, Numbers)
            if np.nanmax(np.abs(feature.value)) > limit:
                problems.add(f"{name} column {feature.name!r}", f"degrees must be within −{limit} and {limit}")


def _points(rule: NeighbourRule, codes: Sequence[Code], features: Sequence[Feature]) -> Array:
    if rule.distance == "profile":
        nobody = np.zeros(len(features[0].missing), dtype=np.int64)
        return write_codes(codes, features, nobody).astype(np.float64)
    places = np.stack([feature.value for feature in features if isinstance(feature, Numbers)], 1)
    if rule.distance == "plane":
        return places
    latitude, longitude = np.radians(places).T
    x, y = np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude)
    return np.stack([x, y, np.sin(latitude)], 1)
