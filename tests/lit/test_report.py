"""The page that a fit leaves: what it says is what a user would find by other ways, and a browser shows it whole."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from table_builders import clinics

from gfl_lightning.__main__ import main
from gfl_lightning.reports.rivals import FEDAVG

Run = Callable[..., Path]
CHROME = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
CHROME += ("--disable-background-networking", "--disable-component-update", "--window-size=1000,3000")
TABLES = ("--data=ClientTables", "--data.samples=s.csv", "--data.edges=e.csv", "--data.task=sc")
ODD = '<script>document.title="run"</script>'
COMMENT = '<!-- "O\'Neil" & <script> </b>'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A fit on the tables of 12 clinics, two of which have names that a page must not believe; returns its folder."""
    monkeypatch.chdir(tmp_path)
    names = {"clinic 1": ODD, "clinic 2": COMMENT}
    for table, file in zip(clinics(), ("s.csv", "e.csv"), strict=True):
        table.replace(names).to_csv(file, index=False)

    def fit(*arguments: str) -> Path:
        before = set(Path().glob("runs/gfl/version_*"))
        quick = ("--trainer.enable_progress_bar=false", "--trainer.max_steps=8", "--model.local.lr=0.3")
        whole = ["fit", "--model=GFL", "--model.encoder.hidden=[8]", *TABLES, *quick, *arguments]
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", *whole])
        main()
        (folder,) = set(Path().glob("runs/gfl/version_*")) - before
        return folder.resolve()

    return fit


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("chromium and chromedriver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    for flag in CHROME:
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium")
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield found
    found.quit()


def text_of(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def row_of(page: str, method: str) -> list[str]:
    """The cells of a row of a table of methods."""
    (cells,) = re.findall(rf"<tr><td>{re.escape(method)}</td>(.*?)</tr>", page)[:1]
    return re.findall(r"<td.*?>(.*?)</td>", cells)


def test_the_page_is_whole_and_asks_nobody(run: Run) -> None:
    page = text_of(run())
    assert "http://" not in page
    assert "https://" not in page
    assert not re.findall(r"(?:src|href)=\"(?!data:)", page)
    for title in ("Methods", "Do the edges carry signal?", "Gain of each client over FedAvg", "New clients", "Data"):
        assert f"<h2>{title}</h2>" in page
    for title in ("Confusion matrix", "Reliability", "Loss", "Importance of features", "Client graph", "Privacy"):
        assert f"<h2>{title}</h2>" in page
    settings = page[page.index("<h2>Settings</h2>") :]
    for fact in ("torch ", "APPNP(alpha=0.1", "python -m gfl_lightning fit --model=GFL"):
        assert fact in settings
    missing = int(pd.read_csv("s.csv")["marker"].isna().sum())
    assert f"<dt>missing values</dt><dd>marker: {missing}</dd>" in page


def test_fedavg_on_the_page_is_the_fit_without_neighbours(run: Run) -> None:
    page = text_of(run())
    alone = json.loads((run("--model.aggregator=Identity", "--report=false") / "summary.json").read_text())
    auroc, accuracy, _, log_loss, _, gain = row_of(page, FEDAVG)
    assert float(auroc) == pytest.approx(alone["test_auroc"], abs=6e-5)
    assert float(accuracy) == pytest.approx(alone["test_accuracy"], abs=6e-5)
    assert float(log_loss) == pytest.approx(alone["test_log_loss"], abs=6e-5)
    own = float(row_of(page, "this model")[3])
    assert float(gain.replace("−", "-").split(" ±")[0]) == pytest.approx(float(log_loss) - own, abs=2e-4)
    everyone = row_of(page, "all training labels, no feature")
    assert float(everyone[1]) == pytest.approx(alone["baseline_accuracy"], abs=6e-5)


def test_a_model_without_neighbours_is_measured_against_the_others(run: Run) -> None:
    page = text_of(run("--model.aggregator=Identity"))
    assert "FedAvg (the same" not in page
    assert "isolated: a model for each client" in page
    assert "Gain of each client over its own training labels" in page


def test_a_gate_has_its_level_where_there_are_no_neighbours(run: Run) -> None:
    gated = row_of(
        text_of(run("--model.personal=Gate", "--model.personal.level=3")), "FedAvg (the same without neighbours)"
    )
    level = run("--model.personal=OwnLevel", "--model.personal.strength=3", "--model.aggregator=Identity")
    assert gated[:5] == row_of(text_of(level), "this model")[:5]


def test_graphs_that_matter_are_said_to_help_and_useless_ones_not(run: Run) -> None:
    """Labels follow a level that neighbours share and no feature shows."""
    draw = np.random.default_rng(0)
    level = np.repeat([-1, 1], 20)
    owner = np.repeat(np.arange(40), 30)
    y = draw.random(len(owner)) < 1 / (1 + np.exp(-2.5 * level[owner]))
    split = np.tile(["train"] * 3 + ["val"] * 7 + ["test"] * 20, 40)
    told = draw.normal(level[owner] * 0.5, 1)
    table = pd.DataFrame({"client": owner, "x": told, "label": np.where(y, "y", "n"), "split": split})
    table.to_csv("s.csv", index=False)
    sides = [(a, b) for a in range(40) for b in draw.permutation(np.flatnonzero(level == level[a]))[:4] if a != b]
    pd.DataFrame([*sides, (19, 20)], columns=["a", "b"]).to_csv("e.csv", index=False)
    helped = text_of(run("--trainer.max_steps=60"))
    assert "The graph helps here: its log loss is" in helped
    mixed = [(a, int(b)) for a in range(40) for b in draw.permutation(40)[:4] if a != b]
    pd.DataFrame(mixed, columns=["a", "b"]).to_csv("e.csv", index=False)
    assert "The graph helps here" not in text_of(run("--trainer.max_steps=60"))


def test_beside_a_long_fit_nothing_is_trained(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gfl_lightning.lit.rivals.WORK", 1000)
    page = text_of(run("--trainer.max_steps=2"))
    assert "As this fit is a long one, no other model was trained beside it." in page
    assert "pooled" not in page


def test_pages_without_what_others_have(run: Run) -> None:
    table = pd.read_csv("s.csv")
    table.assign(split=["train", "val"] * (len(table) // 2)).to_csv("s.csv", index=False)
    page = text_of(run("--model.local.lr=0.01"))
    assert "There are no test rows, so nothing is known of how good the model is." in page
    assert "Confusion matrix" not in page
    assert "Still improving: the best round is" in page


def test_a_page_on_numbers_has_errors_and_residuals(run: Run) -> None:
    table = pd.read_csv("s.csv")
    table.assign(label=table["age"] * 2 + 5).to_csv("s.csv", index=False)
    page = text_of(run("--data.loss=Huber"))
    assert "The mean absolute error is" in page
    assert "<h2>Predictions and residuals</h2>" in page
    assert "gain in absolute error" not in page  # it stands in the figure
    assert "<dt>labels</dt><dd>mean" in page
    assert "pooled boosted trees *" in page


def test_large_numbers_are_written_out(run: Run) -> None:
    table = pd.read_csv("s.csv")
    table.assign(label=table["age"] * 2500 + 80_000).to_csv("s.csv", index=False)
    folder = run("--data.loss=SquaredError", "--model.local.lr=0.01")
    page = text_of(folder)
    page = page[: page.index("<h2>Privacy</h2>")]
    assert re.search(r"The mean absolute error is \d{4,6};", page)
    assert not re.search(r"\d(\.\d+)?e\+\d", re.sub(r"base64,[^\"]*", "", page))
    assert (folder / "client_graph.png").stat().st_size > 10_000


def test_what_labels_alone_say_of_new_clients_is_known(run: Run) -> None:
    """It is taken from those that trained: the network that they join has no training labels."""
    page = text_of(run())
    joined = page[page.index("<h2>New clients</h2>") :]
    accuracy = row_of(joined, "all training labels, no feature")
    assert all(accuracy)
    assert 0 < float(accuracy[3]) < 2  # log loss
    assert "* needs all rows in one place." in joined[: joined.index("<h2>Data</h2>")]


def test_under_protection_nothing_else_is_trained(run: Run) -> None:
    kinds = ("hidden", "jacobian", "update")
    noise = [f"--model.protection.{kind}.{name}=1" for kind in kinds for name in ("std", "clip")]
    page = text_of(run(*noise, "--model.guarantee.delta=1e-3"))
    assert "FedAvg (the same" not in page
    assert "Where uploads are protected nothing else is trained" in page
    assert "Importance of features" not in page
    for fact in ("guarantee", "covers", "does not cover", "noise on hidden", "cost", "this page"):
        assert f"<dt>{fact}</dt>" in page


def test_a_browser_shows_it_and_believes_no_name(run: Run, browser: Any) -> None:
    folder = run()
    browser.get(f"file://{folder}/report.html")
    assert browser.title == "GFL on s.csv"

    def tip_of(client: int) -> str:
        circle = browser.find_element("css selector", f'circle[data-client="{client}"]')
        pytest.importorskip("selenium.webdriver").ActionChains(browser).move_to_element(circle).perform()
        return str(browser.find_element("css selector", ".tip").text)

    names = sorted(pd.read_csv("s.csv")["client"].unique())
    for name in (ODD, COMMENT, "clinic 0"):
        tip = tip_of(names.index(name))
        assert tip.startswith(f"client: {name}\n")
        assert "\nrows: 12\n" in tip
        assert "\naccuracy: " in tip
        assert "\nneighbours: 4: " in tip
    field = browser.find_element("css selector", ".tools input")
    field.send_keys("clinic 11")
    assert browser.find_element("css selector", ".tip").text.startswith("client: clinic 11\n")
    assert len(browser.find_elements("css selector", "circle.found")) == 1
    box = "return document.querySelector('.graph svg').viewBox.baseVal.width"
    plus, _, everything = browser.find_elements("css selector", ".tools button")
    plus.click()
    assert browser.execute_script(box) < 1000
    everything.click()
    assert browser.execute_script(box) == 1000
    for width in (400, 1280):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.get_log("browser") == []
