"""Two servers, and masked sums, between real processes on NVFlare with TLS: ``pytest -m processes``."""

from __future__ import annotations

import json
import signal
import stat
from pathlib import Path

import pytest
import torch
from deploy_builders import SITES, Simulated
from deploy_processes import deployed, faults, prepare

from gfl_lightning.deploy.boxes import SECOND
from gfl_lightning.deploy.plan import Plan

pytestmark = pytest.mark.processes


def expected(folder: Path, chosen: Plan) -> dict[str, torch.Tensor]:
    """W̄ of `fit` with the same seed."""
    federation = Simulated.of(folder, chosen).federation
    state = federation.start()
    for _ in range(chosen.rounds):
        state, _ = federation.round(state)
    return state.weights


def test_the_second_server_is_killed_and_the_rounds_go_on_when_it_is_back(tmp_path: Path) -> None:
    """All of it is killed with −9 while a site pauses; without it there is no round, and no round is lost."""
    chosen = prepare(tmp_path, 6, topology="two_servers", release=True)
    with deployed(tmp_path, {"north": faults(("pause", "train", 3))}) as made:
        made.wait(lambda: made.paused("north", 0), "the pause")
        made.tell(SECOND, signal.SIGKILL)
        made.tell("north", signal.SIGCONT)
        made.start(SECOND)
        record = made.wait_for_the_end()
    assert not record["missing"]
    assert [one["round"] for one in made.rounds()] == list(range(1, 7))
    assert not any(one["missing"] or one["untrained"] for one in made.rounds())
    torch.testing.assert_close(made.last_weights(), expected(tmp_path, chosen), rtol=1e-5, atol=1e-5)
    assert all((made.site_folder(site) / "run" / "model.gfl").is_file() for site in SITES)


def test_masked_sums_are_opened_over_one_set_of_sites_whoever_is_killed(tmp_path: Path) -> None:
    """Three sites are a quorum only together: one that is killed as it is to open a sum ends the job, which goes on."""
    chosen = prepare(tmp_path, 6, masking={"rounds_ahead": 3}, model={"protocol": "gram"})
    environments = {"west": faults(("kill", "mask_open", 2)), "south": faults(("kill answered", "mask_open", 3))}
    with deployed(tmp_path, environments) as made:
        record = made.wait_for_the_end()
    assert all(made.happened(site, 0) for site in environments)
    assert not record["missing"]
    assert [one["round"] for one in made.rounds()] == list(range(1, 7))
    torch.testing.assert_close(made.last_weights(), expected(tmp_path, chosen), rtol=1e-5, atol=1e-5)
    for site in SITES:
        openings = made.site_folder(site) / "run" / "openings.jsonl"
        assert stat.S_IMODE(openings.stat().st_mode) == 0o600
        told = [json.loads(line) for line in openings.read_text().splitlines() if line]
        assert {tuple(one["sites"]) for one in told} == {tuple(sorted(SITES))}
        assert len({tuple(one["sum"]) for one in told}) == len(told)
