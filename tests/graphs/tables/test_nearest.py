"""The nearest points by trees, by products and by ties, against a sort of all distances, one point at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gfl_lightning.graphs.tables import cells, nearest
from gfl_lightning.graphs.tables.nearest import nearest_others
from gfl_lightning.graphs.tables.spots import Spots

Points = np.ndarray[Any, Any]


def ranked(among: Points, point: Points, spot: int, number: int) -> list[int]:
    """All points by distance, then by spots from one on, then by numbers from one on; around and around."""
    spots = list(dict.fromkeys(map(tuple, among)))
    at = {place: u for u, place in enumerate(spots)}
    far = dict(zip(spots, ((np.array(spots) - point) ** 2).sum(1).round(9), strict=True))
    N, U, places = len(among), len(spots), [tuple(row) for row in among]

    def key(j: int) -> tuple[float, int, int]:
        return far[places[j]], (at[places[j]] - spot) % U, (j - number) % N

    return sorted(range(N), key=key)


def slow_others(points: Points, k: int) -> Points:
    own = Spots.of(points).spot
    lists = [ranked(points, points[i], own[i], i + 1) for i in range(len(points))]
    return np.array([[j for j in found if j != i][:k] for i, found in enumerate(lists)])


def drawn(kind: str, N: int, columns: int) -> Points:
    draw = np.random.default_rng(columns)
    if kind == "numbers":
        return draw.normal(size=(N, columns))
    if kind == "grid":
        return draw.integers(0, 4, (N, columns)).astype(float)
    return np.concatenate([np.eye(3)[draw.integers(0, 3, N)] for _ in range(columns)], 1)


@pytest.fixture(params=["tree", "products"])
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path whatever the number of columns, in blocks that a few hundred points fill several times."""
    monkeypatch.setattr(nearest, "TREE_COLUMNS", 99 if request.param == "tree" else 0)
    for module, name, value in ((nearest, "ROWS", 32), (nearest, "COLUMNS", 64), (cells, "CELL", 16)):
        monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("k", [1, 6])
@pytest.mark.parametrize(
    ("kind", "columns"), [("numbers", 1), ("numbers", 14), ("grid", 1), ("grid", 3), ("grid", 6), ("categories", 4)]
)
def test_both_paths_find_what_a_sort_of_all_distances_says(kind: str, columns: int, k: int) -> None:
    points = drawn(kind, 240, columns)
    np.testing.assert_array_equal(nearest_others(points, k), slow_others(points, k))
    asked = np.concatenate([points[::40], drawn(kind, 9, columns) + (0.25 if kind == "numbers" else 0)])
    expected = [ranked(points, point, 0, 0)[:k] for point in asked]
    np.testing.assert_array_equal(nearest.nearest(points, asked, k), expected)


@pytest.mark.usefixtures("small_blocks")
def test_what_is_asked_with_others_has_the_same_answer_alone() -> None:
    points, asked = drawn("grid", 200, 3), drawn("grid", 20, 3)
    together = nearest.nearest(points, asked, 5)
    for i in range(20):
        np.testing.assert_array_equal(nearest.nearest(points, asked[i : i + 1], 5)[0], together[i])


@pytest.mark.usefixtures("small_blocks")
def test_places_far_from_0_and_close_together_are_told_apart() -> None:
    points = 1e6 + 1e-3 * np.random.default_rng(0).permutation(150)[:, None] * np.ones((1, 2))
    found = points[nearest_others(points, 2), 0]
    step = np.abs(found - points[:, :1]).round(5)
    inside = (points[:, 0] > points.min()) & (points[:, 0] < points.max())
    assert (step[inside] == 1e-3).all()
    assert sorted(map(tuple, np.sort(step[~inside], 1))) == [(1e-3, 2e-3)] * 2


def test_a_crowd_on_one_spot_is_a_ring() -> None:
    points = np.concatenate([np.zeros((50, 2)), np.ones((1, 2))])
    found = nearest_others(points, 3)
    np.testing.assert_array_equal(found[:48], (np.arange(48)[:, None] + [1, 2, 3]) % 50)
    assert np.bincount(found.ravel()).max() <= 4


def test_all_others_may_be_asked_for() -> None:
    points = drawn("numbers", 12, 2)
    assert all(set(found) == set(range(12)) - {i} for i, found in enumerate(nearest_others(points, 11)))
    assert nearest.nearest(points, points[:1], 12).shape == (1, 12)


@pytest.mark.usefixtures("small_blocks")
def test_nobody_may_ask() -> None:
    assert nearest.nearest(drawn("numbers", 20, 3), np.zeros((0, 3)), 4).shape == (0, 4)
