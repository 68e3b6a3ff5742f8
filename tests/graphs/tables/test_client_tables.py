"""Tables as a data set: options over those of a trained model, names, weights, and what a checkpoint keeps of them."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from graph_builders import assert_same_bits
from table_builders import EDGES, SAMPLES, clinics, written

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.tables.client_tables import STATE, ClientTables, TableWarning
from gfl_lightning.graphs.tables.network import read_network
from gfl_lightning.graphs.tables.settings import Settings
from gfl_lightning.sealed_files import seal, write_sealed

Files = tuple[str, str]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return saved(tmp_path, *clinics())


def saved(folder: Path, samples: pd.DataFrame, edges: pd.DataFrame, prefix: str = "") -> Files:
    names = str(folder / f"{prefix}samples.csv"), str(folder / f"{prefix}edges.csv")
    samples.to_csv(names[0], index=False)
    edges.to_csv(names[1], index=False)
    return names


def checkpoint(folder: Path, data: ClientTables) -> str:
    """A checkpoint as far as the data are concerned."""
    file = folder / "model.ckpt"
    write_sealed({STATE: data.state_dict()}, file)
    return str(file)


def test_the_graph_is_that_of_the_tables(files: Files) -> None:
    data = ClientTables(*files, task="sc", missing="indicator", fractions=[0.5, 0.25, 0.25], seed=3)
    found = read_network(*files, Settings(task="sc", missing="indicator", fractions=(0.5, 0.25, 0.25), seed=3))
    assert_same_bits(data.graph, found.graph)
    assert data.graph is data.graph
    assert (data.names.clients, data.names.samples) == (found.names.clients, found.names.samples)
    assert data.names.classes == ("ill", "well")
    assert data.repeated(0) is data


def test_nothing_is_read_on_construction_but_contradictions_are_refused(tmp_path: Path) -> None:
    samples, edges = written(tmp_path, "not,a\ntable", "")
    ClientTables(samples, edges, task="sc")
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "task must be one of dnc, snc, sc, got None"),
        ({"task": "sc", "samples": "none.csv"}, "samples must name a file, got 'none.csv'"),
        ({"task": "sc", "edges": "none.csv"}, "edges must name a file, got 'none.csv'"),
        ({"task": "dnc", "scaling": "per_client"}, "scaling must be shared or none for dnc"),
        ({"task": "sc", "class_weights": {"yes": -1.0}}, "class_weights must be positive and finite"),
        ({"task": "sc", "encoding": "none.ckpt"}, r"encoding must name a checkpoint file, got 'none\.ckpt'"),
    ]
    for options, sentence in cases:
        with pytest.raises(InputError, match=sentence):
            ClientTables(**{"samples": samples, "edges": edges} | options)


def test_class_weights_go_by_the_labels_of_the_table(files: Files) -> None:
    plain = ClientTables(*files, task="sc").graph
    weighed = ClientTables(*files, task="sc", class_weights={"well": 1.0, "ill": 6.0}).graph
    assert_same_bits(plain, weighed)
    assert not plain.is_weighted
    assert torch.equal(weighed.weight, torch.tensor([6.0, 1.0])[plain.y])
    with pytest.raises(InputError, match="class_weights must give a weight for each of ill, well"):
        ClientTables(*files, task="sc", class_weights={"ill": 2.0}).make()


def test_named_columns_are_used_and_must_be_there(tmp_path: Path) -> None:
    text = SAMPLES.replace("client,id,age,ward,label,split", "site,key,age,ward,outcome,part")
    pair = written(tmp_path, text, "w,b,a\n2.5,b,a\n")
    named = {"client": "site", "id": "key", "label": "outcome", "split": "part"}
    data = ClientTables(*pair, task="sc", **named, source="a", target="b", weight="w")
    (tmp_path / "usual").mkdir()
    usual = ClientTables(*written(tmp_path / "usual", SAMPLES, "source,target,weight\na,b,2.5\n"), task="sc")
    assert_same_bits(data.graph, usual.graph)
    with pytest.raises(InputError, match=r"split must be a column of samples\.csv"):
        ClientTables(*pair, task="sc", **named | {"split": "when"}).make()


def test_what_may_not_be_meant_is_a_warning(tmp_path: Path) -> None:
    more = SAMPLES + "c,1,1,x,yes,train\n"
    with pytest.warns(TableWarning, match="graph of 3 clients falls into 2 components, 1 of them a single client"):
        ClientTables(*written(tmp_path, more, EDGES), task="sc").make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ClientTables(*written(tmp_path), task="sc").make()


def test_new_rows_and_clients_are_read_as_the_trained_model_reads(files: Files, tmp_path: Path) -> None:
    options: dict[str, Any] = {"task": "sc", "missing": "indicator", "categorical": ["ward"]}
    trained = ClientTables(*files, **options)
    file = checkpoint(tmp_path, trained)
    samples, edges = clinics()
    joined = samples[samples["client"] == "clinic 0"].assign(client="joined later", ward="unseen")
    more = pd.concat([samples, joined]).drop(columns=["label", "id"])
    links = pd.concat([edges, pd.DataFrame([("joined later", "clinic 3")], columns=["a", "b"])])
    data = ClientTables(*saved(tmp_path, more, links, "new-"), encoding=file)
    S = len(samples)
    assert data.settings == trained.settings
    assert torch.equal(data.graph.x[:S], trained.graph.x)
    ward = slice(-3, None)
    assert not data.graph.x[S:, ward].any()
    assert torch.equal(data.graph.x[S:, :-3], trained.graph.x[samples["client"] == "clinic 0"][:, :-3])
    assert bool((data.graph.y == -1).all())
    assert bool(data.graph.mask(Split.NONE).all())
    assert data.names.classes == ("ill", "well")
    assert list(data.names.clients) == [*trained.names.clients, "joined later"]
    with pytest.raises(InputError, match="task must be left out or be 'sc', as the model was trained, got 'snc'"):
        ClientTables(*files, encoding=file, task="snc")


def test_a_checkpoint_that_reads_tables_in_another_way_is_refused(files: Files, tmp_path: Path) -> None:
    trained = ClientTables(*files, task="sc")
    state = trained.state_dict()
    other = saved(tmp_path, *clinics(seed=5), prefix="other-")
    trained.load_state_dict(state)
    ClientTables(*files, task="sc").load_state_dict(state)
    with pytest.raises(InputError, match="encoding must name the checkpoint, as its model reads tables in another way"):
        ClientTables(*other, task="sc").load_state_dict(state)
    ClientTables(*other, encoding=checkpoint(tmp_path, trained)).load_state_dict(state)
    for broken in ({}, {"encoding": None}, {"encoding": {"settings": {}, "classes": [], "codes": []}}):
        with pytest.raises(InputError, match="ckpt_path must hold the encoding of a model"):
            trained.load_state_dict(broken)


def test_models_of_single_clients_need_those_clients(files: Files, tmp_path: Path) -> None:
    trained = ClientTables(*files, task="sc")
    state = trained.state_dict()
    samples, edges = clinics()
    shuffled = samples.sample(frac=1, random_state=1)
    ClientTables(*saved(tmp_path, shuffled, edges, "shuffled-"), task="sc").require_clients(state)
    renamed = samples.replace("clinic 3", "a new clinic"), edges.replace("clinic 3", "a new clinic")
    others = ClientTables(*saved(tmp_path, *renamed, prefix="renamed-"), task="sc")
    with pytest.raises(InputError, match="samples must have clients of the checkpoint only, each with its model"):
        others.require_clients(state)


class Malicious:
    """An object whose unpickling writes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.target, "by a checkpoint")


def test_a_checkpoint_is_plain_data_and_loading_one_runs_no_code(files: Files, tmp_path: Path) -> None:
    state, owned = ClientTables(*files, task="sc").state_dict(), tmp_path / "owned"
    state["encoding"]["extra"] = Malicious(owned)
    (tmp_path / "bad.ckpt").write_bytes(seal({STATE: state}))
    (tmp_path / "plain.ckpt").write_bytes(pickle.dumps(Malicious(owned), protocol=2))
    for name in ("bad.ckpt", "plain.ckpt"):
        with pytest.raises(
            InputError, match=r"encoding must (be a checkpoint of this program|hold tensors and plain data)"
        ):
            ClientTables(*files, encoding=str(tmp_path / name))
    assert not owned.exists()
    torch.load(tmp_path / "bad.ckpt", weights_only=False)
    assert owned.exists()  # so the file would do harm
    write_sealed({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(InputError, match="encoding must be a checkpoint of a model trained on ClientTables"):
        ClientTables(*files, encoding=str(tmp_path / "other.ckpt"))
