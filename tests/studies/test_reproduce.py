"""The command: every study in quick form, continuation, refusals, and what happens without Cora or on Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.datasets import planetoid
from gfl_lightning.studies import command, pool, reproduce, store
from gfl_lightning.studies.cell import Cell
from gfl_lightning.studies.drawing import save
from gfl_lightning.studies.figures import pictures
from gfl_lightning.studies.outcome import Outcome

NEED_CORA = ("dp", "cora")


def run(*arguments: str) -> Outcome:
    return reproduce.reproduce(command.parse([*arguments, "--jobs", "1"]))


def strict(text: str) -> dict[str, Any]:
    def refuse(name: str) -> NoReturn:
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


def without_seconds(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "seconds"}


@pytest.mark.parametrize("study", [*command.PAPERS, *command.OURS])
def test_quick_run_of_each_study(study: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if study in NEED_CORA:
        request.getfixturevalue("planetoid_root")
    repetitions = "2" if study in ("snc", "sc", "connectivity", "necessity") else "1"
    outcome = run("--only", study, "--quick", "--repetitions", repetitions, "--out", str(tmp_path))
    found = strict((tmp_path / "results.json").read_text())
    assert found["quick"] is True
    assert list(found["studies"]) == [study]
    assert {"python", "torch", "torch-geometric"} <= set(found["versions"])
    rows = found["studies"][study]
    assert len(rows) == len(outcome.studies[study])
    for row in rows:
        assert len(row["cells"]) == int(repetitions)
        assert row["agrees"] == "—"
        assert all(
            {"parameters", "accuracy", "seconds", "fingerprint"} <= set(found["cells"][key]) for key in row["cells"]
        )
        if row["accuracy"] is not None:
            assert 0 <= row["accuracy"]["mean"] <= 100
    assert len(list((tmp_path / "cells").glob("*.json"))) == len(found["cells"])

    text = (tmp_path / "results.md").read_text()
    whole = (tmp_path / "results.html").read_text()
    assert "http://" not in whole
    assert "https://" not in whole
    assert whole.count("data:image/png;base64,") == len(list((tmp_path / "images" / "results").glob("*.png")))
    assert "Quick run" in text
    assert "| --- |" in text or study == "curves"
    notes = set(re.findall(r"\[\^(\d)\](?!:)", text))
    assert notes <= set(re.findall(r"^\[\^(\d)\]:", text, re.MULTILINE))
    links = re.findall(r"\]\((images/results/[^)]+)\)", text)
    assert links or study == "settings"  # a study of tables alone
    for link in links:
        assert (tmp_path / link).stat().st_size > 1000
    assert {Path(link).name for link in links} == {file.name for file in (tmp_path / "images/results").glob("*")}


def test_all_is_the_papers_studies() -> None:
    assert command.parse([]).studies == command.parse(["--only", "all"]).studies == tuple(command.PAPERS)
    assert command.parse(["--only", "all", "cora", "sc"]).studies == (*command.PAPERS, "cora")
    assert command.parse([]).repetitions == 20
    assert command.parse(["--quick"]).repetitions == 2
    assert (
        command.parse(["--out", "x", "--jobs", "3", "--quick"]).command == "python -m gfl_lightning reproduce --quick"
    )


def test_figures_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    outcome = run("--only", "necessity", "--quick", "--out", str(tmp_path))
    for folder in ("a", "b"):
        (picture,) = pictures(outcome)["necessity"]
        save(picture, tmp_path / folder)
    first, second = ((tmp_path / folder / "necessity.png").read_bytes() for folder in ("a", "b"))
    assert first == second


def test_a_broken_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = run("--only", "sc", "--quick", "--out", str(tmp_path / "whole"))
    order = ("--only", "sc", "--quick", "--out", str(tmp_path / "broken"))
    trained: list[Cell] = []
    train = pool.run_cell

    def breaking(cell: Cell) -> dict[str, Any]:
        if len(trained) == 5:
            raise KeyboardInterrupt
        trained.append(cell)
        return train(cell)

    monkeypatch.setattr(pool, "run_cell", breaking)
    with pytest.raises(SystemExit) as stop:
        command.main([*order, "--jobs", "1"])
    assert stop.value.code == 130
    assert "what is finished is kept" in capsys.readouterr().err
    assert len(list((tmp_path / "broken/cells").iterdir())) == 5
    assert not (tmp_path / "broken/results.json").exists()

    monkeypatch.setattr(pool, "run_cell", lambda cell: trained.append(cell) or train(cell))
    resumed = run(*order)
    assert f"5 of {len(whole.records)} cells are finished already." in capsys.readouterr().err
    assert len(trained) == len(set(trained)) == len(whole.records) == 10
    for cell, record in whole.records.items():
        assert without_seconds(resumed.records[cell]) == without_seconds(record)
    monkeypatch.setattr(pool, "run_cell", breaking)
    assert run(*order).records == resumed.records


def test_records_of_other_code_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order = ("--only", "necessity", "--quick", "--out", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(store, "fingerprint_of", lambda cell: "older code")
        run(*order)
    capsys.readouterr()
    run(*order)
    said = capsys.readouterr().err
    assert "6 of 6 stored cells" in said
    assert "were made by other code or library versions; they are computed again." in said
    run(*order)
    assert "6 of 6 cells are finished already." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "nope"], r"^error: --only must hold names among all, dnc, .*, got 'nope'\.\n$"),
        (["--repetitions", "0"], r"^error: --repetitions must be at least 1, got 0\.\n$"),
        (["--repetitions", "many"], r"^error: Argument --repetitions: invalid int value: 'many'\.\n$"),
        (["--jobs", "0"], r"^error: --jobs must be at least 1, got 0\.\n$"),
        (["--fast"], r"^error: Unrecognized arguments: --fast\.\n$"),
        (["--out", __file__], r"^error: --out must be a folder, got .*\n$"),
    ],
)
def test_a_mistake_gets_its_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2
    assert re.search(sentence, capsys.readouterr().err)


@pytest.fixture
def no_cora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*arguments: Any) -> NoReturn:
        raise OSError("no network")

    monkeypatch.setenv("GFL_PLANETOID_ROOT", str(tmp_path / "nothing"))
    monkeypatch.setattr(planetoid.datasets, "Planetoid", unreachable)


@pytest.mark.usefixtures("no_cora")
def test_without_cora_the_rest_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run("--only", "curves", "cora", "--quick", "--repetitions", "1", "--out", str(tmp_path))
    said = capsys.readouterr().err
    assert re.search(r"^9 trainings that need Cora are left out: root must hold the files", said, re.MULTILINE)
    assert list(outcome.studies) == ["curves"]
    assert {row.column for row in outcome.studies["curves"]} == {"Synthetic DNC", "Synthetic SNC", "Synthetic SC"}
    assert "9 trainings that need Cora are left out" in (tmp_path / "results.md").read_text()


@pytest.mark.usefixtures("no_cora")
def test_without_cora_a_study_of_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(["--only", "dp", "--quick", "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "trainings that need Cora are left out" in capsys.readouterr().err


def test_help_comes_without_loading_torch() -> None:
    script = (
        "import sys; sys.argv = ['gfl_lightning', 'reproduce', '--help']\n"
        "from gfl_lightning.__main__ import main\n"
        "try: main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for name in (*command.PAPERS, *command.OURS):
        assert re.search(rf"^  {name} ", done.stdout, re.MULTILINE)


def test_what_is_finished_is_written_without_computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("--only", "summary", "--quick", "--repetitions", "1", "--finished", "--out", str(tmp_path))
    with pytest.raises(InputError, match="--finished must find a row whose cells are all finished"):
        run(*asked)
    run("--only", "sc", "--quick", "--repetitions", "1", "--out", str(tmp_path))
    monkeypatch.setattr(reproduce, "run_cells", lambda *_: pytest.fail("something was computed"))
    outcome = run(*asked)
    assert {row.column for row in outcome.studies["summary"]} == {"Synthetic SC"}
    text = (tmp_path / "results.md").read_text()
    assert "--finished" in text
    assert "Not finished when this was written" in text
    assert "Synthetic DNC: GFL-APPNP I=1" in text


def test_processes_end_on_ctrl_c_and_keep_what_is_finished(tmp_path: Path) -> None:
    arguments = ["reproduce", "--only", "sc", "--quick", "--repetitions", "500", "--jobs", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "gfl_lightning", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # a background job ignores it
        start_new_session=True,
    )
    deadline = time.monotonic() + 600
    while not list(tmp_path.glob("cells/[!.]*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "the same command goes on from there" in errors
    kept = list(tmp_path.glob("cells/[!.]*.json"))
    assert kept
    assert all(strict(file.read_text())["record"]["accuracy"] > 0.1 for file in kept)
    assert not list(tmp_path.glob("cells/.*"))
