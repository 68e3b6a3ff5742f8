"""Features against pandas' own statistics, the sums that clients would send, and what a checkpoint keeps of them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from table_builders import clinics, network

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.tables.encoding import Encoding
from gfl_lightning.graphs.tables.network import Network, read_network
from gfl_lightning.graphs.tables.settings import Settings


@pytest.fixture
def tables(tmp_path: Path) -> tuple[pd.DataFrame, str, str]:
    samples, edges = clinics()
    samples["split"] = np.random.default_rng(3).choice(["train", "train", "val", "test"], len(samples))
    samples.to_csv(tmp_path / "s.csv", index=False)
    edges.to_csv(tmp_path / "e.csv", index=False)
    return samples, str(tmp_path / "s.csv"), str(tmp_path / "e.csv")


def read(tables: tuple[pd.DataFrame, str, str], **settings: Any) -> Network:
    return read_network(*tables[1:], Settings(task="sc", **settings))


def columns(found: Network) -> dict[str, np.ndarray]:
    names = []
    for code in found.encoding.state()["codes"]:
        names += [f"{code['name']}={c}" for c in code["categories"]] if "categories" in code else [code["name"]]
        names += [f"no {code['name']}"] * code["flagged"]
    return dict(zip(names, found.graph.x.double().numpy().T, strict=True))


def test_shared_scaling_is_by_mean_and_deviation_of_the_training_rows(
    tables: tuple[pd.DataFrame, str, str],
) -> None:
    samples, found = tables[0], columns(read(tables))
    train = samples["split"] == "train"
    for name in ("age", "marker"):
        mean, deviation = samples.loc[train, name].mean(), samples.loc[train, name].std(ddof=0)
        expected = (samples[name].fillna(mean) - mean) / deviation
        np.testing.assert_allclose(found[name], expected, atol=1e-5)


def test_shared_statistics_follow_from_the_sums_that_clients_send(tables: tuple[pd.DataFrame, str, str]) -> None:
    samples = tables[0]
    train = samples[samples["split"] == "train"]
    code = next(code for code in read(tables).encoding.state()["codes"] if code["name"] == "marker")
    sent = [(own.dropna().size, own.sum()) for _, own in train.groupby("client")["marker"]]
    mean = sum(total for _, total in sent) / sum(count for count, _ in sent)
    squares = [((own.dropna() - mean) ** 2).sum() for _, own in train.groupby("client")["marker"]]
    deviation = (sum(squares) / sum(count for count, _ in sent)) ** 0.5
    assert (code["fill"], code["centre"], code["scale"]) == pytest.approx((mean, mean, deviation))
    union = set().union(*(set(own) for _, own in train.groupby("client")["ward"]))
    assert set(read(tables).encoding.state()["codes"][-1]["categories"]) == union


def test_validation_and_test_rows_do_not_move_the_statistics(tables: tuple[pd.DataFrame, str, str]) -> None:
    before = read(tables).encoding
    samples = tables[0]
    samples.loc[samples["split"] != "train", "age"] = 1e6
    samples.loc[samples["split"] == "test", "ward"] = "Z"
    samples.to_csv(tables[1], index=False)
    assert read(tables).encoding == before


def test_categories_are_one_hot(tables: tuple[pd.DataFrame, str, str]) -> None:
    found, expected = columns(read(tables)), pd.get_dummies(tables[0]["ward"], prefix="ward", prefix_sep="=")
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


def test_per_client_scaling_is_each_clients_own(tables: tuple[pd.DataFrame, str, str]) -> None:
    samples, found = tables[0], columns(read(tables, scaling="per_client"))
    for name in ("age", "marker"):
        own = samples.groupby("client")[name]
        expected = (samples[name] - own.transform("mean")) / own.transform(lambda values: values.std(ddof=0))
        np.testing.assert_allclose(found[name], expected.fillna(0), atol=1e-5)
    assert all(code.get("centre", 0) == 0 for code in read(tables, scaling="per_client").encoding.state()["codes"])


def test_missing_values_get_a_column_where_it_is_asked_for(tables: tuple[pd.DataFrame, str, str]) -> None:
    found = columns(read(tables, missing="indicator"))
    np.testing.assert_array_equal(found["no marker"], tables[0]["marker"].isna())
    assert "no age" not in found
    assert "no marker" not in columns(read(tables))


def test_a_constant_or_huge_column_stays_finite(tmp_path: Path) -> None:
    rows = "".join(f"a,7,{1e25 if i % 2 else -1e25},{0.1 + 1e-17 * i},{i % 2},{part}\n"
                   for i, part in enumerate(["train"] * 6 + ["val", "test"]))  # fmt: skip
    found = network(tmp_path, "client,same,huge,near,label,split\n" + rows, "s,t\na,a\n")
    x = columns(found)
    assert not x["same"].any()
    assert np.abs(x["near"]).max() < 1e-6
    np.testing.assert_allclose(np.abs(x["huge"]), 1)


def test_the_largest_number_over_the_smallest_deviation_stays_finite(tmp_path: Path) -> None:
    rows = "a,0,0,train\na,2.1e-12,1,train\na,{0},0,val\na,-{0},1,test\n"
    with np.errstate(over="raise"):
        found = network(tmp_path, "client,tiny,label,split\n" + rows.format("1e5"), "s,t\na,a\n")
        with pytest.raises(InputError, match=r"x must have samples of a norm of at most 1e\+18"):
            network(tmp_path, "client,tiny,label,split\n" + rows.format("1e25"), "s,t\na,a\n")
    np.testing.assert_allclose(columns(found)["tiny"], [-1, 1, 1e5 / 1.05e-12, -1e5 / 1.05e-12], rtol=1e-6)


def test_numbers_are_categories_where_they_are_declared_so(tmp_path: Path) -> None:
    samples = "client,code,label,split\na,1,x,train\nb,01,y,train\nb,1,y,val\n"
    assert network(tmp_path, samples, "s,t\na,b\n", categorical=("code",)).graph.num_features == 1
    assert network(tmp_path, samples.replace("01", "x1"), "s,t\na,b\n", categorical=("code",)).graph.num_features == 2


def test_an_encoding_survives_a_checkpoint_and_reads_other_tables(
    tables: tuple[pd.DataFrame, str, str], tmp_path: Path
) -> None:
    trained = read(tables, missing="indicator")
    saved = BytesIO()
    torch.save(trained.encoding.state(), saved)
    saved.seek(0)
    encoding = Encoding.from_state(torch.load(saved, weights_only=True), "encoding")
    assert encoding == trained.encoding
    assert encoding.settings == trained.encoding.settings
    again = read_network(*tables[1:], encoding.settings, encoding=encoding)
    assert torch.equal(again.graph.x, trained.graph.x)

    new = tables[0].drop(columns=["label", "split", "id"]).head(20).assign(extra=1, client="new")
    new.loc[0, "ward"], new.loc[1, "ward"] = "unseen", None
    new.to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "none.csv").write_text("s,t\nnew,new\n")
    found = read_network(str(tmp_path / "new.csv"), str(tmp_path / "none.csv"), encoding.settings, encoding=encoding)
    assert found.graph.num_features == trained.graph.num_features
    wards = [i for i, name in enumerate(columns(found)) if name.startswith("ward=")]
    assert found.graph.x[:2, wards].tolist() == [[0] * 3] * 2
    torch.testing.assert_close(found.graph.x[2:], trained.graph.x[2:20])
    assert found.graph.y.tolist() == [-1] * 20
    assert bool(found.graph.shared.all())


def test_tables_that_a_model_cannot_read_are_refused(tables: tuple[pd.DataFrame, str, str]) -> None:
    encoding = read(tables).encoding
    samples = tables[0].drop(columns="age")
    samples.loc[4, "label"] = "dead"
    samples["marker"] = samples["marker"].astype(object)
    samples.loc[5, "marker"] = "high"
    samples.to_csv(tables[1], index=False)
    with pytest.raises(InputError) as refused:
        read_network(*tables[1:], encoding.settings, encoding=encoding)
    for sentence in (
        "s.csv: there is no column 'age', a feature that the model was trained on",
        "s.csv line 6, column 'label': the model knows no label 'dead', only ill, well",
        "s.csv line 7, column 'marker': 'high' is not a number",
    ):
        assert sentence in str(refused.value)


def test_what_the_model_was_trained_with_cannot_be_given_otherwise(tables: tuple[pd.DataFrame, str, str]) -> None:
    saved = read(tables, missing="indicator").encoding.settings
    assert Settings.of({"client": "hospital", "task": "sc", "seed": None}, saved).client == "hospital"
    for given, sentence in (
        ({"task": "snc"}, "task must be left out or be 'sc', as the model was trained, got 'snc'"),
        ({"features": ["age"]}, r"features must be left out or be None, as the model was trained, got \['age'\]"),
        ({"missing": "fill"}, "missing must be left out or be 'indicator', as the model was trained, got 'fill'"),
    ):
        with pytest.raises(InputError, match=sentence):
            Settings.of(given, saved)
    with pytest.raises(InputError, match="task must be one of dnc, snc, sc, got None"):
        Settings.of({"task": None})


PLACES = [(), ("codes",), ("classes",), ("settings",), ("codes", 0), ("codes", 0, "kind"), ("settings", "task")]
NUMBERS = [("codes", 0, "scale"), ("codes", 0, "centre")]
JUNK = [None, "text", {"a": 1}, -1]


@pytest.mark.parametrize(
    ("path", "junk"),
    [(path, junk) for path in PLACES + NUMBERS for junk in JUNK if (path, junk) != (("codes", 0, "centre"), -1)],
)
def test_a_broken_encoding_is_refused(tables: tuple[pd.DataFrame, str, str], path: tuple[Any, ...], junk: Any) -> None:
    state: Any = read(tables).encoding.state()
    if not path:
        state = junk
    else:
        place = state
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = junk
    with pytest.raises(InputError, match=r"^encoding must hold the encoding of a model, got "):
        Encoding.from_state(state, "encoding")
