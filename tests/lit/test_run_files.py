"""What a fit on tables prints and leaves, what stops it, and how mistakes on the command line are answered."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from table_builders import clinics

from gfl_lightning.__main__ import main

Run = Callable[..., str]
FIT = ("fit", "--model=GFL", "--model.encoder.hidden=[8]", "--data=ClientTables", "--data.samples=s.csv")
FIT += ("--data.edges=e.csv", "--data.task=sc", "--trainer.enable_progress_bar=false")
CHROME = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
CHROME += ("--disable-background-networking", "--disable-component-update", "--window-size=1000,3000")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    for table, file in zip(clinics(), ("s.csv", "e.csv"), strict=True):
        table.to_csv(file, index=False)

    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", *arguments])
        main()
        return capsys.readouterr().out

    return call


def rounds(number: int) -> int:
    return int(json.loads(Path(f"runs/gfl/version_{number}/summary.json").read_text())["rounds"])


def test_patience_ends_a_fit_on_tables_and_can_be_set(run: Run) -> None:
    fast = (*FIT, "--model.local.lr=2.0", "--report=false", "--trainer.max_steps=160")
    run(*fast)
    run(*fast, "--patience=5")
    run(*fast, "--patience=0")
    assert rounds(1) < rounds(0) < rounds(2) == 160


def test_a_patience_below_one_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run(*FIT, "--patience=-1")
    assert stop.value.code == 2
    assert "patience must be at least 1, got -1" in capsys.readouterr().err


def test_no_patience_under_a_guarantee(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = ("hidden", "jacobian", "update")
    noise = [f"--model.protection.{kind}.{name}=1" for kind in kinds for name in ("std", "clip")]
    with pytest.raises(SystemExit) as stop:
        run("fit", "--model=GFL", "--data=DNC", "--data.num_clients=50", *noise, "--patience=5")
    assert stop.value.code == 2
    assert "patience must be 0 under a guarantee" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_the_screen_speaks_of_edges_baseline_and_of_training_longer(run: Run) -> None:
    shown = run(*FIT, "--model.local.lr=0.001", "--trainer.max_steps=3", "--report=false")
    assert "edges  the edges" in shown
    assert "(validation loss" in shown
    assert "the last: train longer" in shown
    assert "a client's own accuracy is" in shown
    assert "majority" in shown
    assert not Path("runs/gfl/version_0/report.html").exists()
    assert not Path("runs/gfl/version_0/loss_curves.png").exists()


def test_mistyped_options_and_missing_data_are_answered(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(*FIT, "--trainer.maximal_steps=3")
    assert "--trainer.max_steps" in capsys.readouterr().err
    run(*FIT, "--trainer.max_steps=2", "--report=false")
    with pytest.raises(SystemExit) as stop:
        run("test", "--ckpt_path=runs/gfl/version_0/best.ckpt")
    assert stop.value.code == 2
    assert "data must be given to test, as the checkpoint holds none" in capsys.readouterr().err


def test_the_page_is_whole_and_shows_a_client_in_a_browser(run: Run) -> None:
    run(*FIT, "--trainer.max_steps=5")
    folder = Path("runs/gfl/version_0").resolve()
    for name in ("loss_curves.png", "client_graph.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    text = (folder / "report.html").read_text()
    assert "http://" not in text
    assert "https://" not in text
    for title in ("Methods", "Gain of each client", "Data", "Confusion matrix", "Reliability", "Loss", "Privacy"):
        assert f"<h2>{title}</h2>" in text
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("chromium and chromedriver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    for flag in CHROME:
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        browser.get(f"file://{folder}/report.html")
        circle = browser.find_element("css selector", 'circle[data-client="0"]')
        webdriver.ActionChains(browser).move_to_element(circle).perform()
        tip = browser.find_element("css selector", ".tip").text
        assert browser.get_log("browser") == []
    finally:
        browser.quit()
    assert "client: clinic 0" in tip
    assert "rows: 12" in tip
    assert "neighbours: 4: " in tip
