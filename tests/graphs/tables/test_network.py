"""What tables become: clients, labels, ids, shared rows and edges, from CSV and Parquet alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from graph_builders import assert_same_bits
from table_builders import EDGES, SAMPLES, clinics, network, written

from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.tables.network import read_network
from gfl_lightning.graphs.tables.settings import Settings


def test_a_small_network_entry_by_entry(tmp_path: Path) -> None:
    found = network(tmp_path, scaling="none")
    graph, names = found.graph, found.names
    assert graph.x.tolist() == [[30, 1, 0], [40, 0, 1], [50, 1, 0], [35, 0, 1], [45, 1, 0]]
    assert graph.y.tolist() == [1, 0, 1, 0, 1]
    assert graph.client.tolist() == [0, 0, 0, 1, 1]
    assert graph.split.tolist() == [0, 0, 2, 0, 1]
    assert graph.shared.tolist() == [True, True, False, True, False]
    assert graph.edge_index.tolist() == [[0, 1], [1, 0]]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [1.5, 1.5]
    assert (list(names.clients), list(names.classes)) == (["a", "b"], ["no", "yes"])
    assert list(names.samples) == ["1", "2", "3", "1", "2"]


def test_ids_are_text_as_it_stands(tmp_path: Path) -> None:
    samples = "client,age,label,split\n007,1,yes,train\n7,2,no,train\nNA,3,yes,val\n 7,4,no,test\n"
    found = network(tmp_path, samples, "a,b\n007,7\nNA, 7\n7,NA\n")
    assert list(found.names.clients) == [" 7", "007", "7", "NA"]
    assert list(found.names.samples) == [1, 2, 3, 4]
    assert found.warnings == []


def test_csv_and_parquet_make_the_same_network(tmp_path: Path) -> None:
    samples, edges = clinics()
    files = []
    for ending in ("csv", "parquet"):
        pair = [str(tmp_path / f"{name}.{ending}") for name in ("samples", "edges")]
        for table, file in zip((samples, edges), pair, strict=True):
            table.to_csv(file, index=False) if ending == "csv" else table.to_parquet(file)
        files.append(pair)
    one, other = (read_network(*pair, Settings(task="sc")) for pair in files)
    assert_same_bits(one.graph, other.graph)
    assert one.encoding == other.encoding


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ([True, False, None], [False, True]),
        ([10, 9, None], [9, 10]),
        ([0.5, -1.0, None], [-1, 0.5]),
        (["b", "a", None], ["a", "b"]),
    ],
)
def test_labels_keep_their_type_in_parquet_and_their_text_in_csv(
    tmp_path: Path, values: list[object], classes: list[object]
) -> None:
    _, edges = written(tmp_path)
    table = pd.DataFrame(
        {
            "client": list("aabba"),
            "age": range(5),
            "label": pd.Series([values[i] for i in (0, 1, 0, 1, 2)]).convert_dtypes(),
            "split": ["train", "train", "val", "test", None],
        }
    )
    table.to_parquet(tmp_path / "s.parquet")
    table.to_csv(tmp_path / "s.csv", index=False)
    typed = read_network(str(tmp_path / "s.parquet"), edges, Settings(task="sc"))
    assert list(typed.names.classes) == classes
    assert [type(name) for name in typed.names.classes] == [type(name) for name in classes]
    text = read_network(str(tmp_path / "s.csv"), edges, Settings(task="sc"))
    assert [float(name) if name[0] in "-019" else name for name in map(str, text.names.classes)] == [
        name if isinstance(name, (str, bool)) is False else str(name) for name in classes
    ]
    assert torch.equal(text.graph.y, typed.graph.y)
    assert typed.graph.y[4] == -1


def test_clients_without_training_rows_share_all_they_have(tmp_path: Path) -> None:
    graph = network(tmp_path, SAMPLES + "c,1,1,x,,\nc,2,1,x,yes,test\n", EDGES + "b,c,1\n").graph
    assert graph.shared.tolist() == [True, True, False, True, False, True, True]
    assert graph.split[-2] == Split.NONE
    assert graph.y[-2] == -1


def test_repeated_edges_and_loops_are_merged_and_weight_0_is_no_edge(tmp_path: Path) -> None:
    graph = network(tmp_path, edges="source,target,weight\na,b,1\nb,a,2\na,a,7\n").graph
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [1.5, 1.5]
    assert network(tmp_path, edges="source,target,weight\na,b,0\n").graph.num_edges == 0


def test_cells_that_are_missing_are_a_choice(tmp_path: Path) -> None:
    samples = SAMPLES.replace("a,1,30,x,yes", "a,1,NA,x,yes").replace("b,2,45,x,yes", "b,2,45,None,yes")
    filled = network(tmp_path, samples, missing="indicator", scaling="none").graph.x
    assert filled[0].tolist() == [37.5, 1, 1, 0]
    assert filled[-1].tolist() == [45, 0, 0, 0]
    other = network(tmp_path, samples.replace("NA", "-"), missing_values=("-",), scaling="none").graph.x
    assert other[0].tolist() == [37.5, 1, 0]


def test_a_byte_order_mark_and_another_separator_are_read(tmp_path: Path) -> None:
    expected = network(tmp_path).graph
    found = network(tmp_path, "\ufeff" + SAMPLES.replace(",", ";"), EDGES.replace(",", ";"), separator=";")
    assert_same_bits(found.graph, expected)


def test_the_order_of_rows_changes_only_their_order(tmp_path: Path) -> None:
    samples, edges = clinics()
    samples["split"] = np.random.default_rng(1).choice(["train", "val", "test"], len(samples))
    order = np.random.default_rng(2).permutation(len(samples))
    files = [str(tmp_path / name) for name in ("one.csv", "other.csv", "edges.csv")]
    for table, file in zip((samples, samples.iloc[order], edges), files, strict=True):
        table.to_csv(file, index=False)
    one, other = (read_network(file, files[2], Settings(task="sc")) for file in files[:2])
    torch.testing.assert_close(other.graph.x, one.graph.x[torch.from_numpy(order)])
    assert torch.equal(other.graph.client, one.graph.client[torch.from_numpy(order)])
    assert list(other.names.samples) == [one.names.samples[i] for i in order]
