"""Studies read the configurations: what a row changes is changed, nothing else, and no file is left out."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gfl_lightning.checks import InputError
from gfl_lightning.studies import experiment as module
from gfl_lightning.studies.catalogue import STUDIES
from gfl_lightning.studies.cell import Cell
from gfl_lightning.studies.experiment import CONFIGS, NOTHING, Experiment

OF_NO_STUDY = {
    "overlays/randomise_once",
    "overlays/wandb",
    "paper/dnc_karate",
    "private/dp_cora_epsilon",
    "private/dp_sc_epsilon",
}


@pytest.mark.parametrize("file", sorted((CONFIGS / "paper").glob("*.yaml")), ids=lambda file: file.stem)
def test_an_experiment_is_its_file(file: Path) -> None:
    config, read = yaml.safe_load(file.read_text()), Experiment.read(f"paper/{file.stem}")
    assert read.rounds == config["trainer"]["max_steps"]
    for part, options in (("model", read.model_options), ("data", read.data_options)):
        assert read.content[part]["class_path"] == config[part]["class_path"]
        assert options == config[part].get("init_args", {})
    assert read.changed() == read
    assert Experiment.read(f"paper/{file.stem}") == read


def test_every_experiment_is_stated_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    whole = Experiment.read.__func__  # type: ignore[attr-defined]  # a class method
    monkeypatch.setattr(Experiment, "read", classmethod(lambda cls, name: read.add(name) or whole(cls, name)))
    for study in STUDIES.values():
        study(1)
    files = {str(file.relative_to(CONFIGS).with_suffix("")) for file in CONFIGS.rglob("*.yaml")}
    assert files - read == OF_NO_STUDY


def test_a_change_leaves_the_rest() -> None:
    base = Experiment.read("paper/sc_fedmlp")
    found = base.changed(7, {"local": {"lr": 0.3}}, {"degree": 6}).content
    assert found["rounds"] == 7
    assert found["model"]["init_args"] == {
        "aggregator": {"class_path": "Identity"},
        "local": {"lr": 0.3, "steps": 10, "batch_size": 5},
    }
    assert found["data"] == {"class_path": "SC", "init_args": {"degree": 6}}
    sgc = {"class_path": "SGC", "init_args": {"k": 2}}
    assert base.changed(model={"aggregator": sgc}).model_options["aggregator"] == sgc
    back = base.changed(model={"aggregator": sgc}).changed(model={"aggregator": {"class_path": "Identity"}})
    assert back == base
    assert Experiment.read("paper/sc_fedmlp") == base


def test_epsilon_is_that_of_all_rounds_or_of_records() -> None:
    base = Experiment.read("paper/dnc_synthetic")
    assert base.epsilon is None
    assert base.changed(model={"guarantee": {"max_epsilon": 2.0}}).epsilon == 2.0
    records = Experiment.read("private/randomise_cora")
    assert records.epsilon == 8.0
    assert records.changed(model={"records": {"init_args": {"epsilon": NOTHING}}}).epsilon is None
    other = records.with_data("DNC", {"num_clients": 40})
    assert (other.data, other.data_options, other.model_options) == ("DNC", {"num_clients": 40}, records.model_options)


@pytest.mark.parametrize(("steps", "rounds"), [(1, 3000), (20, 150), (50, 60), (7, 428), (5000, 1)])
def test_local_steps_share_the_updates(steps: int, rounds: int) -> None:
    found = Experiment.read("paper/dnc_synthetic").with_steps(steps)
    assert (found.steps, found.rounds) == (steps, rounds)


def test_what_a_study_would_ignore_is_refused() -> None:
    with pytest.raises(InputError, match=r"^trainer of private/dp_cora_epsilon must be max_steps alone, got .*$"):
        Experiment.read("private/dp_cora_epsilon")


def test_without_the_folder_of_configurations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONFIGS", tmp_path)
    with pytest.raises(InputError, match=r"^reproduce must be run from a checkout, whose folder configs it reads"):
        Experiment.read("paper/of_nothing")


def test_the_configuration_is_part_of_a_cells_key() -> None:
    one, other = (Cell(Experiment.read(f"paper/dnc_synthetic{name}"), 0) for name in ("", "_v1"))
    assert one.key != other.key
    assert one.parameters["model"]["class_path"] == "GFL"
