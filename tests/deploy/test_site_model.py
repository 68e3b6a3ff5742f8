"""A site predicts for its own rows with what it received, as `predict` would with everybody's."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from deploy_builders import Simulated, driver, make_tables, plan

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.site_model import read_site_model
from gfl_lightning.deploy.state_file import read_state, write_state
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.mlp import MLP


@pytest.mark.parametrize("aggregator", [None, LearnablePolynomial(M=3), Identity()])
def test_a_site_predicts_what_the_whole_federation_would(tmp_path: Path, aggregator: Any) -> None:
    make_tables(tmp_path)
    options = {} if aggregator is None else {"aggregator": aggregator}
    chosen = plan("sc", 3, encoder=MLP((6,)), **options)
    outcome = driver(tmp_path, chosen).run()
    federation = Simulated.of(tmp_path, chosen).federation
    expected = torch.softmax(federation.logits_of(outcome.best.weights), -1)
    everyone = pd.read_csv(tmp_path / "samples.csv")
    for site in ("north", "south", "west"):
        table = read_site_model(tmp_path / site).predict(str(tmp_path / f"{site}.csv"))
        rows = everyone["client"].isin(table["client"]).tolist()
        found = torch.tensor(table[["p_ill", "p_well"]].to_numpy().tolist(), dtype=torch.float64)
        torch.testing.assert_close(found, expected[rows].double(), rtol=1e-4, atol=1e-5)


def test_rows_of_other_sites_and_a_site_without_a_model_are_refused(tmp_path: Path) -> None:
    make_tables(tmp_path)
    with pytest.raises(InputError, match="DIR must be the folder of a site whose training is over"):
        read_site_model(tmp_path / "north")
    driver(tmp_path, plan(rounds=1, encoder=MLP((3,)))).run()
    with pytest.raises(InputError, match="client 'b' is none of this site's"):
        read_site_model(tmp_path / "north").predict(str(tmp_path / "south.csv"))


def test_state_files_are_for_their_owner_and_whole(tmp_path: Path) -> None:
    file = tmp_path / "state"
    state = {"round": 3, "loss": float("inf"), "W": {1: torch.eye(2)}, "list": [None, True, "ü", [torch.zeros(0)]]}
    write_state(file, state)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = read_state(file)
    torch.testing.assert_close(found["W"][1], torch.eye(2))
    assert (found["round"], found["loss"], found["list"][:3]) == (3, float("inf"), [None, True, "ü"])
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match="must be a whole state file of this program"):
        read_state(file)
    with pytest.raises(TypeError, match="a state must hold plain values and tensors, got object"):
        write_state(file, {"o": object()})
