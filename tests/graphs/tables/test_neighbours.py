"""Edges from profiles, against distances that are measured one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from table_builders import clinics

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.graphs.tables.features import Categories, Numbers
from gfl_lightning.graphs.tables.nearest import nearest
from gfl_lightning.graphs.tables.neighbours import NeighbourRule, Profiles


def expected(points: np.ndarray[Any, Any], k: int) -> set[tuple[int, int]]:
    distance = cdist(points, points)
    np.fill_diagonal(distance, np.inf)
    return {(int(i), int(j)) for i in range(len(points)) for j in distance[i].argsort()[:k]}


def pairs(edges: Any) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for a, b in edges.T}


def test_a_profile_standardises_numbers_and_spreads_categories() -> None:
    draw = np.random.default_rng(1)
    income, age = draw.normal(30000, 9000, 40), draw.normal(40, 5, 40)
    age[3] = np.nan
    region = draw.integers(0, 3, 40)
    features = [Numbers("income", income), Numbers("age", age), Categories("region", region, ["n", "s", "w"])]
    found = Profiles.of(NeighbourRule(3), features)
    filled = np.where(np.isnan(age), np.nanmean(age), age)
    columns = [(income - income.mean()) / income.std(), (filled - np.nanmean(age)) / np.nanstd(age)]
    points = np.column_stack([*columns, np.eye(3)[region]])
    np.testing.assert_allclose(found.points, points, atol=1e-6)
    assert pairs(found.edges()) == expected(points, 3)
    again = Profiles.from_state(found.state())
    np.testing.assert_array_equal(again.nearest_to(again.points_of(features)), nearest(points, points, 3))


def test_the_globe_is_round() -> None:
    places = pd.DataFrame([("Suva", -18.1, 178.4), ("Apia", -13.8, -171.8), ("Sydney", -33.9, 151.2)])
    features = [Numbers("lat", places[1].to_numpy()), Numbers("lon", places[2].to_numpy())]
    on_globe = Profiles.of(NeighbourRule(1, ("lat", "lon"), "globe"), features)
    in_plane = Profiles.of(NeighbourRule(1, ("lat", "lon"), "plane"), features)
    assert on_globe.edges()[1].tolist() == [1, 0, 0]
    assert in_plane.edges()[1].tolist() == [2, 2, 0]


def test_clients_on_one_point_have_k_others_each() -> None:
    edges = Profiles.of(NeighbourRule(2, ("x",), "plane"), [Numbers("x", np.zeros(9))]).edges()
    assert edges.shape == (2, 18)
    assert (edges[0] != edges[1]).all()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    samples, _ = clinics()
    draw = np.random.default_rng(0)
    clients = pd.DataFrame(
        {
            "client": [f"clinic {k}" for k in range(13)],
            "beds": draw.normal(100, 30, 13),
            "north": draw.normal(50, 9, 13),
            "east": draw.normal(10, 9, 13),
            "kind": ["town", "city"] * 6 + ["town"],
        }
    )
    samples.to_csv(tmp_path / "s.csv", index=False)
    clients.iloc[::-1].to_csv(tmp_path / "c.csv", index=False)
    return {"samples": str(tmp_path / "s.csv"), "clients": str(tmp_path / "c.csv"), "task": "sc"}


@pytest.mark.filterwarnings("ignore::gfl_lightning.graphs.tables.client_tables.TableWarning")
def test_the_table_of_clients_gives_edges_and_features(files: dict[str, Any]) -> None:
    plain = ClientTables(**files, neighbours=4, near=["north", "east"], distance="plane", client_features=[])
    clients = pd.read_csv(files["clients"]).set_index("client")
    names = list(plain.names.clients)
    places = clients.loc[names, ["north", "east"]].to_numpy()
    both = {frozenset(pair) for pair in expected(places, 4)}
    assert {frozenset(pair) for pair in pairs(plain.graph.edge_index.numpy())} == both
    named = ClientTables(**files, neighbours=2, near=["north"], client_features=["beds", "kind"])
    assert named.graph.num_features == plain.graph.num_features + 3
    extra = named.graph.x[:, -3:].numpy()
    owner = [names[k] for k in named.graph.client]
    beds = clients.loc[names, "beds"]
    np.testing.assert_allclose(extra[:, 0], (clients.loc[owner, "beds"] - beds.mean()) / beds.std(ddof=0), atol=1e-5)
    np.testing.assert_array_equal(extra[:, 2], clients.loc[owner, "kind"] == "town")
    whole = ClientTables(**files, neighbours=2)
    assert whole.graph.num_features == plain.graph.num_features + 5
    own = ClientTables(**files, neighbours=2, scaling="per_client")
    np.testing.assert_allclose(own.graph.x[:, -5:], whole.graph.x[:, -5:])


def test_a_table_of_clients_may_stand_beside_edges(files: dict[str, Any], tmp_path: Path) -> None:
    clinics()[1].to_csv(tmp_path / "e.csv", index=False)
    found = ClientTables(**files, edges=str(tmp_path / "e.csv"))
    assert found.graph.num_edges == 24
    assert found.graph.num_features == 10
    repeated = pd.read_csv(files["samples"]).merge(pd.read_csv(files["clients"]), on="client")
    repeated.to_csv(tmp_path / "whole.csv", index=False)
    alike = ClientTables(str(tmp_path / "whole.csv"), str(tmp_path / "e.csv"), task="sc")
    np.testing.assert_allclose(found.graph.x, alike.graph.x, atol=0.2)  # means over clients instead of rows


REFUSED = [
    ({}, "edges must name a table, or neighbours say how many of the nearest clients to connect, got None"),
    ({"neighbours": 0}, "neighbours must be at least 1, got 0"),
    ({"neighbours": 12}, "neighbours must be below the number of clients"),
    ({"neighbours": 2, "near": []}, "near must name at least one column"),
    ({"neighbours": 2, "near": ["height"]}, "near must be a column of c.csv"),
    ({"neighbours": 2, "distance": "road"}, "distance must be one of profile, plane, globe, got 'road'"),
    ({"neighbours": 2, "distance": "globe"}, "near must name two columns, latitude and longitude, where distance is"),
    ({"neighbours": 2, "near": ["beds", "east"], "distance": "globe"}, "degrees must be within −90 and 90"),
    ({"neighbours": 2, "near": ["kind"], "distance": "plane"}, "places must be numbers where distance is plane"),
    ({"neighbours": 2, "client_features": ["height"]}, "client_features must be a column of c.csv"),
    ({"neighbours": 2, "clients": None}, "clients must name a table where neighbours is given"),
    ({"edges": "e.csv", "near": ["beds"]}, "near must be left out without neighbours"),
    ({"edges": "e.csv", "neighbours": 2}, "neighbours must be left out where edges are given, got 2"),
    ({"neighbours": 2, "source": "a"}, "source must be left out without edges, got 'a'"),
    ({"neighbours": 2, "representations": "kept"}, "representations must be left out without encoding"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED, ids=lambda value: str(value)[:40])
def test_options_that_cannot_make_edges_are_refused(
    files: dict[str, Any], tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    clinics()[1].to_csv(tmp_path / "e.csv", index=False)
    if "edges" in options:
        options = options | {"edges": str(tmp_path / "e.csv")}
    with pytest.raises(InputError, match=sentence):
        _ = ClientTables(**files | options).graph


def test_mistakes_in_the_table_of_clients_are_listed(files: dict[str, Any]) -> None:
    clients = pd.read_csv(files["clients"])
    clients.loc[0, "client"], clients.loc[1, "client"] = "clinic 3", None
    clients = clients[clients["client"] != "clinic 5"].assign(beds=["many", *clients["beds"][1:12]])
    clients.to_csv(files["clients"], index=False)
    with pytest.raises(InputError) as refusal:
        _ = ClientTables(**files, neighbours=2, near=["north", "east"], distance="plane").graph
    text = str(refusal.value)
    assert "client 'clinic 3' has a second row; the table of clients has one for each" in text
    assert "c.csv line 3, column 'client': the id is empty" in text
    assert "c.csv: client 'clinic 5' has samples but no row here" in text
    assert "c.csv line 2, column 'beds': 'many' is not a number" in text
    clients.rename(columns={"beds": "age"}).to_csv(files["clients"], index=False)
    with pytest.raises(InputError, match="client_features must have other names than the features of the samples"):
        _ = ClientTables(**files, neighbours=2).graph
