"""Every option of a data set changes its graph or is refused: a new one must find its place in this table."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from graph_builders import random_clients
from lit_options import Args, kinds_of, options_of, parser, refusal
from table_builders import clinics

from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet

GRAPH = {"num_clients": "60", "num_features": "6", "degree": "6", "lam": "1", "mu": "3", "graph_seed": "1"}
GRAPH |= {"repetition": "1"}
SMALL = ["--data.num_clients=50", "--data.num_features=5"]
TABLES = ["--data.samples=s.csv", "--data.edges=e.csv", "--data.task=sc"]
DATA: dict[str, tuple[Args, dict[str, str]]] = {
    "DNC": (SMALL, GRAPH),
    "SNC": ([*SMALL, "--data.samples_per_client=3"], GRAPH | {"samples_per_client": "2"}),
    "SC": (
        [*SMALL, "--data.test_samples=5"],
        GRAPH | {"train_samples": "3", "val_samples": "3", "test_samples": "3"},
    ),
    "Citations": (
        ["--data.num_clients=300", "--data.num_words=50", "--data.num_val=50", "--data.num_test=100"],
        {
            "num_clients": "310",
            "num_classes": "5",
            "num_words": "40",
            "degree": "3.5",
            "homophily": "0.9",
            "words_per_document": "20",
            "topical": "0.8",
            "labelled": "10",
            "num_val": "40",
            "num_test": "90",
            "repetition": "1",
        },
    ),
    "KarateClub": ([], {"seed": "1"}),
    "Planetoid": ([], {"name": "Nothing", "root": "nowhere"}),
    "SubCora": (
        ["--data.recipe.min_train=10", "--data.recipe.max_class_std=4"],
        {
            "repetition": "1",
            "seed": "1",
            "root": "nowhere",
            "cache": "elsewhere",
            "recipe.drawn": "700",
            "recipe.min_train": "30",
            "recipe.max_train": "20",
            "recipe.max_class_std": "2",
            "recipe.clients": "250",
            "recipe.max_draws": "1",
        },
    ),
    "ClientGraphFile": (["--data.path=g.pt"], {"path": "other.pt", "class_weights": "balanced"}),
    "ClientTables": (
        TABLES,
        {
            "samples": "other.csv",
            "edges": "other_edges.csv",
            "task": "snc",
            "client": "ward",
            "label": "ward",
            "split": "part",
            "split_by": "year",
            "id": "number",
            "features": "[age]",
            "numeric": "[ward]",
            "categorical": "[year]",
            "scaling": "none",
            "missing": "indicator",
            "missing_values": "[A]",
            "max_categories": "2",
            "loss": "SquaredError",
            "class_weights": "balanced",
            "fractions": "[0.5, 0.3, 0.2]",
            "seed": "1",
            "source": "c",
            "target": "c",
            "weight": "w",
            "separator": ";",
            "encoding": "none.ckpt",
            "clients": "c.csv",
            "client_features": "[size]",
            "neighbours": "2",
            "near": "[size]",
            "distance": "plane",
            "representations": "rows",
            "public": '{"ranges": {"age": [0, 120]}, "classes": ["ill", "well"]}',
        },
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tables and graphs, which is the current one."""
    monkeypatch.chdir(tmp_path)
    for seed, names in ((0, ("s.csv", "e.csv")), (1, ("other.csv", "other_edges.csv"))):
        samples, edges = clinics(seed=seed)
        index = samples.index.to_series()
        samples = samples.assign(year=index % 3, number=index, part=["train", "val", "test"] * 48)
        edges = edges.assign(c=edges["b"].iloc[::-1].to_numpy(), w=1.0 + edges.index)
        samples.to_csv(names[0], index=False)
        pd.DataFrame(edges if seed == 0 else edges.iloc[:-1]).to_csv(names[1], index=False)
        torch.save(random_clients("sc", seed=seed, dtype=torch.float32).to_data(), ("g.pt", "other.pt")[seed])
    return tmp_path


def test_every_option_of_a_data_set_has_its_place(folder: Path) -> None:
    assert {kind.__name__ for kind in kinds_of(DataSet)} == set(DATA)
    for name, (context, table) in DATA.items():
        assert options_of("data", "--model=GFL", f"--data={name}", *context) == set(table), name


def drawn(*args: str) -> Any:
    """A graph and its names; the sentence where they are refused."""
    try:
        config = parser().parse_args(["fit", "--model=GFL", *args])
        data: DataSet = parser().instantiate_classes(config).fit.data
        graph: ClientGraph = data.graph
    except Exception as error:
        return refusal(error)
    columns = {field.name: getattr(graph, field.name) for field in fields(graph)}
    plain = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in columns.items()}
    return plain | {name: list(value) for name, value in vars(data.names).items()}


@pytest.mark.filterwarnings("ignore::gfl_lightning.graphs.tables.client_tables.TableWarning")
@pytest.mark.parametrize(
    ("kind", "option"), [(kind, option) for kind, (_, table) in DATA.items() for option in table], ids=str
)
def test_every_option_of_a_data_set_changes_the_graph(
    kind: str, option: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    context, table = DATA[kind]
    if kind in ("Planetoid", "SubCora"):
        root = request.getfixturevalue("planetoid_root")
        context = [*context, f"--data.root={root}", *([f"--data.cache={folder}"] if kind == "SubCora" else [])]
    base = (f"--data={kind}", *context)
    without = drawn(*base)
    assert isinstance(without, dict), without
    before = set(folder.iterdir())
    changed = drawn(*base, f"--data.{option}={table[option]}")
    if (kind, option) == ("SubCora", "cache"):
        assert set(folder.iterdir()) - before == {folder / "elsewhere"}
    else:
        assert changed != without
