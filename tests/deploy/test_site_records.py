"""Records that sites randomise once: what leaves them is made of the draw alone, which is paid for once."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from deploy_builders import CLIENTS, PUBLIC, Simulated, driver, make_tables, plan, roster, settings, site, sites

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.folders import ServerFolder
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.outcome import read_outcome, write_outcome
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.roster import graph_without_data
from gfl_lightning.deploy.site import Site
from gfl_lightning.deploy.site_account import STATISTICS
from gfl_lightning.deploy.site_model import read_site_model
from gfl_lightning.deploy.table_plan import TablePlan
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.records.records import Census
from gfl_lightning.graphs.records.rotated import Rotated
from gfl_lightning.graphs.records.shared_labels import SharedLabels
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.randomise.once import RandomisedOnce
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit
from gfl_lightning.reports.screen import render

ONCE = RandomisedOnce(8.0, PrivUnit(dimensions=3), label_share=0.5)


def private(task: str = "sc", rounds: int = 3, **options: Any) -> Plan:
    tables = TablePlan(replace(settings(task), missing="fill"), **PUBLIC)
    options = {"records": ONCE, "tables": tables, "encoder": MLP((4,)), "local": LocalTraining(0.3, 3)} | options
    return plan(task, rounds, **options)


@pytest.mark.parametrize("task", ["sc", "snc", "dnc"])
@pytest.mark.parametrize("records", [SharedLabels(0.7), RandomisedOnce(math.inf, PrivUnit(dimensions=3))])
def test_records_without_chance_are_those_of_one_table(tmp_path: Path, task: str, records: Any) -> None:
    """Shared labels, also on the scale of the mechanisms: the trajectory is that of the engine on a table of all."""
    make_tables(tmp_path, task)
    chosen = private(task, records=records)
    made = driver(tmp_path, chosen)
    outcome = made.run()
    whole = Simulated.of(tmp_path, replace(chosen, records=plan(task).records)).federation.graph
    seen = records.of(_scaled_as_agreed(made, whole), np.random.default_rng(0))
    seen = records.heard(seen, chosen.aggregator.gamma)
    federation = Federation(seen, chosen.encoder, local=chosen.local, seed=chosen.seed)
    state = federation.start()
    for _ in range(chosen.rounds):
        state, _ = federation.round(state)
    torch.testing.assert_close(made.weights, state.weights, rtol=1e-5, atol=1e-6)
    assert not outcome.spent


def test_shared_labels_beside_a_protection_of_single_samples_are_refused() -> None:
    protection = Protection(steps=StepNoise(1.0, 1.0), unit="sample")
    with pytest.raises(InputError, match="records must share no labels where DP-SGD protects single samples"):
        private("snc", records=SharedLabels(), protection=protection)


def _scaled_as_agreed(made: Any, graph: ClientGraph) -> ClientGraph:
    """Public ranges scale a column by another centre and length than its statistics do."""
    encoding = made.store.read().agreement.encoding
    samples = pd.read_csv(made.store.file.parent.parent / "samples.csv")
    columns = []
    for code in encoding.codes:
        column = samples[code.name]
        if hasattr(code, "categories"):
            columns += [(column == value).to_numpy(float) for value in code.categories]
        else:
            columns.append(((column - code.centre) / code.scale).fillna(0.0).to_numpy())
    return replace(graph, x=torch.from_numpy(np.stack(columns, 1)).float())


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("sc", {"records": replace(ONCE, unit="sample")}),
        ("dnc", {"protocol": "gram"}),
        ("dnc", {"protocol": "gram", "encoder": Linear(), "local": LocalTraining(0.1, 3, weight_decay=0.01)}),
        ("snc", {"protocol": "gram", "encoder": Linear(), "masking": Masking(on=True), "least_sites": 3}),
        ("snc", {"records": replace(ONCE, pooled=True), "encoder": Linear()}),
        ("sc", {"masking": Masking(on=True), "least_sites": 3}),
    ],
)
def test_the_rounds_are_those_of_the_engine_on_what_the_sites_have_drawn(
    tmp_path: Path, task: str, options: dict[str, Any]
) -> None:
    """The records of all sites put together as one graph, with the loss that is corrected for them."""
    make_tables(tmp_path, task)
    chosen = private(task, **options)
    at = sites(tmp_path, chosen)
    made = driver(tmp_path, chosen, at)
    outcome = made.run()
    joined = _joined(tmp_path, at)
    assert joined.loss == at["west"].party.graph.loss
    parts = {"local": chosen.local, "seed": chosen.seed, "protocol": chosen.protocol}
    federation = Federation(joined, chosen.encoder, **parts)  # type: ignore[arg-type]
    state = federation.start()
    for _ in range(chosen.rounds):
        state, _ = federation.round(state)
    torch.testing.assert_close(made.weights, state.weights, rtol=1e-5, atol=1e-6)
    assert outcome.spent == dict.fromkeys(at, (8.0, ()))


def _joined(folder: Path, at: dict[str, Site]) -> ClientGraph:
    """One graph of the records of all sites, their samples in the order of all clients."""
    graph = graph_without_data(roster(), str(folder / "edges.csv"), EdgeColumns())
    pieces = []
    for one in at.values():
        own = one.party.graph
        numbers = torch.tensor(one.clients.in_order)
        pieces.append({"client": numbers[own.client], **{n: getattr(own, n) for n in ("x", "y", "split", "shared")}})
    whole = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
    order = torch.sort(whole["client"], stable=True).indices
    own = at["west"].party.graph
    columns: dict[str, Any] = {name: value[order] for name, value in whole.items()}
    return replace(graph, **columns, num_classes=own.num_classes, loss=own.loss, weight=torch.ones(len(order)))


def test_a_site_draws_once_and_again_after_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same records in a process of its own, for nothing; other rows are refused, as they would cost ε again."""
    make_tables(tmp_path)
    at = sites(tmp_path, private())
    driver(tmp_path, private(), at).run()
    again = sites(tmp_path, private())
    made = driver(tmp_path, private(), again)
    made.store.file.unlink()
    made.run()
    for name, one in again.items():
        assert torch.equal(one.party.graph.x, at[name].party.graph.x)
        assert len((one.folder / "records.jsonl").read_text().splitlines()) == 1
    rows = pd.read_csv(tmp_path / "south.csv")
    rows.loc[rows["split"] == "test", "age"] += 5  # samples that are neither shared nor in use cost nothing
    rows.to_csv(tmp_path / "south.csv", index=False)
    made = driver(tmp_path, private())
    made.store.file.unlink()
    made.run()
    rows.loc[rows["split"] == "train", "age"] += 5
    rows.to_csv(tmp_path / "south.csv", index=False)
    made = driver(tmp_path, private())
    made.store.file.unlink()
    with pytest.raises(InputError, match="south: InputError in phase begin"):
        made.run()
    assert "max_epsilon must leave room for records of other rows than those that" in caplog.text


def test_a_budget_allows_another_draw_and_both_are_counted(tmp_path: Path) -> None:
    make_tables(tmp_path)
    chosen = private(guarantee=Guarantee(max_epsilon=16.0))
    driver(tmp_path, chosen).run()
    rows = pd.read_csv(tmp_path / "south.csv")
    rows.loc[rows["split"] == "train", "age"] += 5
    rows.to_csv(tmp_path / "south.csv", index=False)
    made = driver(tmp_path, chosen)
    made.store.file.unlink()
    assert made.run().spent == {"north": (8.0, ()), "south": (16.0, ()), "west": (8.0, ())}


def test_a_server_cannot_make_a_label_cheaper_by_its_census(tmp_path: Path) -> None:
    """The labels of a client share ε: the site counts its own, whatever the server says."""
    make_tables(tmp_path)
    one = site(tmp_path, private(), "north")
    read = one.table.read(dict.fromkeys(("age", "lactate"), "numeric") | {"ward": "categorical"}, ("ill", "well"))
    encoding = _agreement(tmp_path).encoding
    graph = read.graph(encoding, [1.0, 1.0])
    most = int(graph.counts(graph.mask(Split.TRAIN) | graph.mask(Split.VAL)).max())
    told, honest = (ONCE.of_some(graph, np.random.default_rng(0), Census(6, 6, n)).loss for n in (1, most))
    assert told == honest
    assert ONCE.of_some(graph, np.random.default_rng(0), Census(6, 6, 2 * most)).loss != honest


def _agreement(folder: Path) -> Any:
    made = driver(folder, private(rounds=1))
    made.run()
    kept = made.store.read()
    assert kept is not None
    return kept.agreement


def test_the_summary_tells_epsilon_and_nothing_of_test_rows(tmp_path: Path) -> None:
    make_tables(tmp_path)
    outcome = driver(tmp_path, private()).run()
    assert math.isnan(outcome.test["test"].loss)
    assert math.isfinite(outcome.best.val_loss)
    server = ServerFolder.prepare(tmp_path / "kit", private(), roster(), tmp_path / "edges.csv", EdgeColumns())
    write_outcome(server, outcome)
    record = read_outcome(server)
    assert record is not None
    assert "ε = 8 (pure, δ = 0) against everybody, paid once" in render(record, server.run)
    statistics = replace(private(), tables=TablePlan(replace(settings(), missing="fill")))
    (tmp_path / "other").mkdir()
    make_tables(tmp_path / "other")
    spent = driver(tmp_path / "other", statistics).run().spent
    assert set(spent.values()) == {(math.inf, (STATISTICS,))}


def test_a_site_predicts_for_its_rows_as_they_are(tmp_path: Path) -> None:
    make_tables(tmp_path)
    at = sites(tmp_path, private())
    driver(tmp_path, private(), at).run()
    one = at["south"]
    table = read_site_model(one.folder).predict(str(tmp_path / "south.csv"))
    home = ONCE.at_home(one._read.graph(one._encoding, [1.0, 1.0]))  # type: ignore[union-attr, arg-type]
    kept = read_site_model(one.folder)
    model = kept.plan.model(kept.encoding.num_features, 2)
    logits = kept.own[0, 0] * model.encoder(kept.weights, home.x) + kept.C[0]
    expected = torch.softmax(logits, -1)[:, 1].numpy()
    np.testing.assert_allclose(table["p_well"].to_numpy(dtype=float), expected, rtol=1e-5)
    assert CLIENTS[1] == "b"


def test_what_a_site_cannot_make_alone_or_keep_is_refused() -> None:
    with pytest.raises(InputError, match="records must be made of a client's own rows in a deployment, whose plan"):
        plan(records=Rotated(3))
    with pytest.raises(InputError, match="protection must be left out where records are randomised"):
        private(protection=Protection(Gaussian(1.0, 1.0)))
    with pytest.raises(InputError, match="max_epsilon must be at least the 8 of the randomised records"):
        private(guarantee=Guarantee(max_epsilon=4.0))
    with pytest.raises(InputError, match="class_weights must be left out where labels are randomised"):
        private(tables=TablePlan(settings(), "balanced"))
    with pytest.raises(InputError, match="ledger must be left out of a deployment, where every site keeps its own"):
        private(guarantee=Guarantee(max_epsilon=8.0, ledger="ledger.jsonl"))
    assert Plan.from_state(private().state()) == private()
