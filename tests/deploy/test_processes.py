"""Deployments of real processes on NVFlare with TLS. They take minutes: ``pytest -m processes``.

A test gives up after ten minutes without any news, and none depends on what is quick: faults happen in a phase of a
round, in the process of the site itself, and the model is compared with that of a run in which sites were absent where
the server's record says so.
"""

from __future__ import annotations

import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from deploy_builders import PUBLIC, SITES, Simulated
from deploy_processes import Deployed, deployed, faults, merely_absent, prepare

from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.state_file import read_state
from gfl_lightning.deploy.status import status_of
from gfl_lightning.engine.best import Best

pytestmark = pytest.mark.processes
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def simulated(folder: Path, chosen: Plan) -> tuple[dict[str, torch.Tensor], Best]:
    federation = Simulated.of(folder, chosen).federation
    state, best = federation.start(), Best()
    for _ in range(chosen.rounds):
        state, report = federation.round(state)
        best = federation.choose(best, state, report)
    return state.weights, best


def test_a_quiet_run_ends_as_fit_does_and_a_stranger_gets_nowhere(tmp_path: Path) -> None:
    """Twenty rounds to 1e-5; in the middle a site of another authority, with the name of one of ours, tries to join.

    One of ours pauses until that has been refused.
    """
    chosen = prepare(tmp_path, 20, model={"local": {"lr": 0.1, "steps": 3, "batch_size": 4}})
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    prepare(stranger, 20)
    foreign, ours = Deployed(stranger).site_folder("west"), tmp_path / "kits" / "sites" / "west"
    shutil.copy(ours / "startup" / "fed_client.json", foreign / "startup" / "fed_client.json")
    with deployed(tmp_path, {"north": faults(("pause", "train", 10))}) as made:
        intruder = Deployed(stranger)
        try:
            made.wait(lambda: made.paused("north", 0), "the pause")
            intruder.start("west")
            made.wait(lambda: _is_refused(foreign / "console.txt"), "the refusal")
            made.tell("north", signal.SIGCONT)
            record = made.wait_for_the_end()
            said = (foreign / "console.txt").read_text(errors="replace")
        finally:
            intruder.end()
    weights, best = simulated(tmp_path, chosen)
    torch.testing.assert_close(made.last_weights(), weights, **CLOSE)
    assert record["best_round"] == best.round
    assert record["val_loss"] == pytest.approx(best.val_loss, rel=1e-5)
    assert not record["missing"]
    assert "joined" not in said
    assert not (foreign / "run" / "model.gfl").exists()
    assert "finished  best round" in status_of(made.kits / "server")
    for site in SITES:
        model = made.site_folder(site) / "run" / "model.gfl"
        assert stat.S_IMODE(model.stat().st_mode) == 0o600
        assert "the model is in" in made.console(site)
        assert str(model) in status_of(made.site_folder(site))
    _predicts(made)


def _is_refused(console: Path) -> bool:
    said = console.read_text(errors="replace").lower() if console.is_file() else ""
    return "certificate" in said or "handshake" in said


def _predicts(made: Deployed) -> None:
    """A site predicts with its folder and its table alone."""
    (made.kits / "server").rename(made.folder / "elsewhere")
    output = made.folder / "predictions.csv"
    command = ["predict", str(made.site_folder("north")), "--samples", str(made.folder / "north.csv")]
    command = [sys.executable, "-m", "gfl_lightning", "deploy", *command, "--output", str(output)]
    subprocess.run(command, check=True, capture_output=True)
    assert len(pd.read_csv(output)) == len(pd.read_csv(made.folder / "north.csv"))


def test_wrong_answers_a_pause_and_full_disks_cost_a_site_the_phase_and_nothing_else(tmp_path: Path) -> None:
    """NaN, too large, a replayed round, another site's id, each in both phases; then the disk of the server is full."""
    chosen = prepare(tmp_path, 12)
    kinds = ("nan", "large", "replay", "identity")
    wrong = [(what, "share", t) for t, what in enumerate(kinds, start=2)]
    wrong += [(what, "train", t) for t, what in enumerate(kinds[1:], start=6)]
    environments = {
        "west": faults(*wrong),
        "north": faults(("kill", "squares", None), ("pause", "train", 3), ("pause", "share", 11)),
    }
    disk = _small_disk(tmp_path / "kits" / "server" / "run")
    try:
        with deployed(tmp_path, environments) as made:
            made.wait(lambda: made.paused("north", 1), "the pause")
            time.sleep(3)
            assert len(made.rounds()) == 3, "the server waits for whom it has not given up"
            made.tell("north", signal.SIGCONT)
            made.wait(lambda: made.paused("north", 2), "the second pause")
            if disk:
                _fill(made.server_folder.run)
            made.tell("north", signal.SIGCONT)
            if disk:
                made.wait(lambda: "nothing can be written to" in made.console("server"), "a sentence on the disk")
                (made.server_folder.run / "filler").unlink()
            made.wait_for_the_end()
        news = {one["round"]: one["missing"] for one in made.rounds()}
        sentences = ["must hold finite numbers", "must have at most", "round must be 4, got 3", "sender must be 'west'"]
        for number, sentence in enumerate(sentences, start=2):
            assert sentence in news[number]["west"]
        for number, sentence in enumerate(["must have at most", "round must be 7, got 6", "sender must be"], start=7):
            assert sentence in news[number]["west"]
        assert {number for number, missing in news.items() if missing} == {2, 3, 4, 5, 7, 8, 9}
        assert sorted(news) == list(range(1, 13))
        torch.testing.assert_close(made.last_weights(), merely_absent(made, chosen), **CLOSE)
    finally:
        if disk:
            subprocess.run(["umount", "--lazy", str(tmp_path / "kits" / "server" / "run")], check=False)


def _small_disk(folder: Path) -> bool:
    """A file system of 2 MB, where this user may mount one."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(1024))
        except OSError:
            return


def test_processes_killed_in_every_phase_of_a_round_lose_at_most_it_and_pay_for_no_answer_twice(tmp_path: Path) -> None:
    """Killed with −9 when asked, or when the answer was written down, which is asked for again; the server too."""
    environments = {
        "west": faults(("kill", "share", 2)),
        "south": faults(("kill answered", "share", 4)),
        "north": faults(("kill", "train", 3), ("kill answered", "train", 5), ("pause", "train", 6)),
    }
    chosen = _prepare_protected(tmp_path, 8)
    with deployed(tmp_path, environments) as made:
        made.wait(lambda: made.paused("north", 2), "the pause")
        made.tell("server", signal.SIGKILL)
        made.running["server"].wait()
        made.tell("north", signal.SIGCONT)
        made.start("server")
        record = made.wait_for_the_end()
    assert all(made.happened(*one) for one in (("west", 0), ("south", 0), ("north", 0), ("north", 1)))
    _nothing_was_lost(made, chosen, record, again=5)


def test_processes_killed_before_the_rounds_and_after_them_lose_nothing(tmp_path: Path) -> None:
    """Killed with −9 in each phase of the agreement, and when they are to keep the model."""
    environments = {
        "west": faults(("kill", "columns", None), ("kill", "begin", None)),
        "south": faults(("kill", "sums", None), ("kill", "finish", None)),
    }
    chosen = _prepare_protected(tmp_path, 3)
    with deployed(tmp_path, environments) as made:
        record = made.wait_for_the_end()
    assert all(made.happened(site, number) for site in ("west", "south") for number in range(2))
    _nothing_was_lost(made, chosen, record, again=0)


def _prepare_protected(folder: Path, rounds: int) -> Plan:
    """Sites that protect what they send: keys and accounts are on their disks before an answer leaves."""
    noise = {"hidden": _gaussian(2.0, 0.5), "jacobian": _gaussian(4.0, 1.0), "update": _gaussian(1.0, 0.5)}
    callbacks = [{"class_path": "callbacks.DPNoise", "init_args": noise}]
    public = {
        "ranges": {name: list(ends) for name, ends in PUBLIC["ranges"].items()},
        "categories": {name: list(values) for name, values in PUBLIC["categories"].items()},
        "classes": list(PUBLIC["classes"]),
    }
    return prepare(folder, rounds, callbacks=callbacks, public=public, missing="fill", least_sites=len(SITES))


def _nothing_was_lost(made: Deployed, chosen: Plan, record: dict[str, Any], again: int) -> None:
    """Nobody is absent from any round, of which some are made again; keys and accounts are those of a quiet run.

    The noise is that of the keys, and so the model is that of a run in which nothing happened, to the bit but for
    rounding.
    """
    assert not record["missing"]
    assert [one["round"] for one in made.rounds()] == list(range(1, chosen.rounds + 1))
    assert not any(one["missing"] or one["untrained"] for one in made.rounds())
    assert made.rounds_made() <= chosen.rounds + again, "a round for each kill"
    torch.testing.assert_close(made.last_weights(), merely_absent(made, chosen), **CLOSE)
    for site in SITES:
        folder = made.site_folder(site) / "run"
        secrets = [folder / "account.gfl", *folder.glob("noise-*.key")]
        assert [stat.S_IMODE(file.stat().st_mode) for file in secrets] == [0o600, 0o600]
        spent, quiet = (read_state(at / "account.gfl")["ledger"] for at in (folder, made.folder / "alone" / site))
        torch.testing.assert_close(spent["server"], quiet["server"], rtol=0, atol=0)
        assert record["epsilon"] > 0


def _gaussian(std: float, clip: float) -> dict[str, object]:
    return {"class_path": "Gaussian", "init_args": {"std": std, "clip": clip}}


def test_a_site_that_dies_is_absent_until_it_is_back(tmp_path: Path) -> None:
    """All of a site is killed in *train*; the rounds go on without it, and with it once it was started again.

    Another site pauses in the meantime, so that there are rounds left.
    """
    chosen = prepare(tmp_path, 10)
    environments = {"south": faults(("kill site", "train", 3)), "north": faults(("pause", "train", 6))}
    with deployed(tmp_path, environments) as made:
        made.wait(lambda: made.paused("north", 0), "the pause")
        made.start("south")
        made.wait(lambda: "south is here without a part" in made.console("server"), "the return")
        made.tell("north", signal.SIGCONT)
        made.wait_for_the_end()
    news = made.rounds()
    assert [one["round"] for one in news] == list(range(1, 11))
    assert [one["round"] for one in news if "south" in one["untrained"]] == [4, 5, 6]
    assert [one["ages"]["south"] for one in news] == [0, 0, 0, 0, 1, 2, 0, 0, 0, 0]
    assert [one["trained"] for one in news] == [6, 6, 6, 5, 5, 5, 6, 6, 6, 6]
    torch.testing.assert_close(made.last_weights(), merely_absent(made, chosen), **CLOSE)


def test_a_table_that_does_not_fit_is_refused_at_both_ends(tmp_path: Path) -> None:
    prepare(tmp_path, 3)
    table = pd.read_csv(tmp_path / "south.csv")
    table.assign(colour="red").to_csv(tmp_path / "south.csv", index=False)
    with deployed(tmp_path) as made:
        made.wait(lambda: made.running["server"].poll() is not None, "the refusal")
    assert made.running["server"].returncode == 2
    assert "south: column 'colour' is unknown at the other sites" in made.console("server")
    logs = "".join(file.read_text(errors="replace") for file in made.site_folder("south").rglob("log*.txt"))
    assert "south was refused by the server: column 'colour' is unknown" in logs
