"""Deployments of real processes on NVFlare with TLS. They take minutes: ``pytest -m processes``."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from deploy_builders import SITES, Faulty, Simulated, driver, sites
from deploy_processes import Deployed, deployed, prepare

from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.progress import Store
from gfl_lightning.deploy.transport import LocalTransport
from gfl_lightning.engine.best import Best

pytestmark = pytest.mark.processes
MISBEHAVING = Path(__file__).parent / "misbehaving"


def last_weights(made: Deployed) -> dict[str, torch.Tensor]:
    kept = Store(made.server_folder.run / "progress.gfl").read()
    assert kept is not None
    return dict(kept.sums["weights"])


def simulated(folder: Path, chosen: Plan) -> tuple[dict[str, torch.Tensor], Best]:
    federation = Simulated.of(folder, chosen).federation
    state, best = federation.start(), Best()
    for _ in range(chosen.rounds):
        state, report = federation.round(state)
        best = federation.choose(best, state, report)
    return state.weights, best


def test_a_quiet_run_ends_as_fit_does_and_a_stranger_gets_nowhere(tmp_path: Path) -> None:
    """Twenty rounds to 1e-5; beside them a site of another authority, with the name of one of ours, tries to join."""
    chosen = prepare(tmp_path, 20, model={"local": {"lr": 0.1, "steps": 3, "batch_size": 4}}, timeout=60)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    prepare(stranger, 20)
    foreign = stranger / "kits" / "sites" / "west"
    ours = tmp_path / "kits" / "sites" / "west"
    shutil.copy(ours / "startup" / "fed_client.json", foreign / "startup" / "fed_client.json")
    with deployed(tmp_path) as made:
        intruder = Deployed(stranger)
        try:
            intruder.start("west")
            record = made.wait_for_the_end(240)
            said = (foreign / "console.txt").read_text(errors="replace")
        finally:
            intruder.end()
    weights, best = simulated(tmp_path, chosen)
    torch.testing.assert_close(last_weights(made), weights, rtol=1e-5, atol=1e-5)
    assert record["best_round"] == best.round
    assert record["val_loss"] == pytest.approx(best.val_loss, rel=1e-5)
    assert not record["missing"]
    assert "joined" not in said
    assert "certificate" in said.lower() or "handshake" in said.lower()
    assert not (foreign / "run" / "model.gfl").exists()
    for site in SITES:
        assert (tmp_path / "kits" / "sites" / site / "run" / "model.gfl").is_file()
        assert "the model is in" in made.console(site)


def test_wrong_answers_and_a_pause_cost_a_site_the_phase_and_nothing_else(tmp_path: Path) -> None:
    """NaN, too large, a replayed round, another site's id: each is absent from one share, and the model is that."""
    chosen = prepare(tmp_path, 9, timeout=8)
    wrong = {"PYTHONPATH": str(MISBEHAVING), "GFL_MISBEHAVE": "nan,large,replay,identity"}
    with deployed(tmp_path, {"west": wrong}) as made:
        made.wait_for_round(7)
        made.tell("north", signal.SIGSTOP)
        time.sleep(4)
        made.tell("north", signal.SIGCONT)
        made.wait_for_the_end()
    news = {one["round"]: one["missing"] for one in made.rounds()}
    sentences = ("must hold finite numbers", "must have at most", "round must be 4, got 3", "sender must be 'west'")
    for number, sentence in enumerate(sentences, start=2):
        assert sentence in news[number]["west"]
    assert all(not missing for number, missing in news.items() if number > 5)
    answers = {name: one.answer for name, one in sites(tmp_path, chosen).items()}
    silent = Faulty(LocalTransport(answers), lambda phase, t: phase == "share" and 2 <= t <= 5, site="west")
    oracle = driver(tmp_path, chosen, transport=silent)
    oracle.run()
    assert oracle._sums is not None
    torch.testing.assert_close(last_weights(made), oracle._sums.server.weights, rtol=1e-5, atol=1e-6)


def test_killed_processes_lose_at_most_a_round(tmp_path: Path) -> None:
    """A worker, a whole site and the server are killed with −9 and come back: the result is that of a quiet run."""
    chosen = prepare(tmp_path, 60, timeout=60)
    with deployed(tmp_path) as made:
        made.wait_for_round(3)
        made.tell("west", signal.SIGKILL, only="worker_process")
        made.wait_for_round(12)
        made.tell("south", signal.SIGKILL)
        made.start("south")
        made.wait_for_round(22)
        made.tell("server", signal.SIGKILL)
        made.running["server"].wait()
        made.start("server")
        record = made.wait_for_the_end(240)
    weights, best = simulated(tmp_path, chosen)
    if not any(one["missing"] for one in made.rounds()):
        torch.testing.assert_close(last_weights(made), weights, rtol=1e-4, atol=1e-4)
        assert record["best_round"] == best.round
    numbers = [one["round"] for one in made.rounds()]
    assert sorted(set(numbers)) == list(range(1, 61))
    assert len(numbers) - 60 <= 3


def test_a_site_that_is_gone_for_good_is_absent_and_its_age_grows(tmp_path: Path) -> None:
    chosen = prepare(tmp_path, 12, timeout=60)
    with deployed(tmp_path) as made:
        made.wait_for_round(4)
        made.tell("south", signal.SIGKILL)
        made.wait_for_the_end()
    news = made.rounds()
    gone = [one["round"] for one in news if "south" in one["missing"]]
    first = gone[0]
    assert gone == list(range(first, 13))
    assert [one["oldest"] for one in news][-1] == 12 - first
    kept = last_weights(made)
    answers = {name: one.answer for name, one in sites(tmp_path, chosen).items()}
    found = []
    for phase in ("train", "share"):  # it may have died in either phase of its last round
        begins = {"train": first - 1 + (phase == "share"), "share": first}

        def absent(current: str, t: int, begins: dict[str, int] = begins) -> bool:
            return t >= begins.get(current, 10**6)

        oracle = driver(tmp_path, chosen, transport=Faulty(LocalTransport(answers), absent, site="south"))
        oracle.store.file.unlink(missing_ok=True)
        oracle.run()
        assert oracle._sums is not None
        found.append(
            all(torch.allclose(kept[n], w, rtol=1e-4, atol=1e-5) for n, w in oracle._sums.server.weights.items())
        )
        answers = {name: one.answer for name, one in sites(tmp_path, chosen).items()}
    assert any(found)


def test_a_table_that_does_not_fit_is_refused_at_both_ends(tmp_path: Path) -> None:
    prepare(tmp_path, 3)
    table = pd.read_csv(tmp_path / "south.csv")
    table.assign(colour="red").to_csv(tmp_path / "south.csv", index=False)
    with deployed(tmp_path) as made:
        made.wait(lambda: made.running["server"].poll() is not None, 120, "the refusal")
    assert made.running["server"].returncode == 2
    assert "south: column 'colour' is unknown at the other sites" in made.console("server")
    logs = "".join(
        file.read_text(errors="replace") for file in (tmp_path / "kits" / "sites" / "south").rglob("log*.txt")
    )
    assert "south was refused by the server: column 'colour' is unknown" in logs
