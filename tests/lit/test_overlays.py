"""Protection survives configurations that are laid over each other, or the command line is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from callbacks import DPNoise
from gfl_lightning.lit import cli
from gfl_lightning.lit.overlays import statements

Run = Callable[..., str]
OVERLAY = Path(__file__).parents[2] / "configs" / "overlays" / "wandb.yaml"
NOISE = {
    "class_path": "callbacks.DPNoise",
    "init_args": {"hidden": {"class_path": "Gaussian", "init_args": {"std": 1}}},
}
WEAK, WEAKER = {"init_args": {"max_epsilon": 50.0}}, {"init_args": {"epsilon": 50.0}}
SMALL = {
    "model": {"class_path": "GFL", "init_args": {"encoder": {"hidden": [4]}}},
    "data": {"class_path": "DNC", "init_args": {"num_clients": 50, "num_features": 5}},
}
QUIET = {"max_steps": 2, "enable_progress_bar": False}


class Hidden(DPNoise):
    """A protecting callback of somebody else's."""


def hidden() -> Hidden:
    """A function that stands for its callback."""
    return Hidden()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `fit` in a folder of configurations: the error text, empty where there is none."""
    monkeypatch.chdir(tmp_path)
    files = {
        "private": SMALL | {"trainer": QUIET | {"callbacks": [NOISE]}},
        "budget": {"trainer": {"callbacks+": [{"class_path": "callbacks.PrivacyBudget"}]}},
        "other": {"trainer": {"callbacks": [{"class_path": "EarlyStopping", "init_args": {"monitor": "val_loss"}}]}},
        "appending": {"trainer": {"callbacks+": [{"class_path": "LearningRateMonitor"}]}},
        "restating": {"trainer": {"callbacks": [NOISE | {"init_args": {"hidden": {"std": 2.0}}}]}},
        "elsewhere": {"trainer": {"callbacks": [NOISE | {"init_args": {"update": {"std": 2.0}}}]}},
        "none": {"trainer": {"callbacks": None}},
        "in_the_model": {"model": {"class_path": "GFL", "init_args": {"protection": {"hidden": {"std": 1.0}}}}},
        "plain": SMALL | {"trainer": QUIET},
    }
    for name, content in files.items():
        Path(f"{name}.yaml").write_text(yaml.safe_dump(content))

    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", "fit", *arguments])
        with suppress(SystemExit):
            cli.main()
            return ""
        assert not Path("runs").exists()
        return capsys.readouterr().err

    return call


def protection() -> dict[str, dict[str, float]]:
    (file,) = Path("runs").glob("gfl/*/summary.json")
    return json.loads(file.read_text())["privacy"]["protection"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config=private.yaml", "--config=other.yaml"],
        ["-c", "private.yaml", "-c", "other.yaml"],
        ["--conf", "private.yaml", "--config", "none.yaml"],
        ["--config=private.yaml", "--trainer.callbacks=EarlyStopping", "--trainer.callbacks.monitor=val_loss"],
        ["--config=private.yaml", "--trainer.callbacks=null"],
        ["--config=private.yaml", "--config=budget.yaml", "--config=restating.yaml"],
        ["--config=private.yaml", "--config=other.yaml", "--config=plain.yaml"],
        ["--config=plain.yaml", "--trainer.callbacks=callbacks.DPSGD", "--trainer.callbacks=LearningRateMonitor"],
    ],
)
def test_what_drops_protection_is_refused_with_one_sentence(run: Run, arguments: list[str]) -> None:
    shown = run(*arguments)
    assert shown.startswith("error: trainer.callbacks must keep "), shown
    assert "append to the list with trainer.callbacks+" in shown
    assert shown.count("\n") == 1


def test_a_name_that_stands_twice_in_a_file_erases_nothing(run: Run) -> None:
    private = Path("private.yaml").read_text()
    Path("twice.yaml").write_text(f"{private}\ntrainer: {{max_steps: 2}}\n")
    Path("within.yaml").write_text("trainer:\n  callbacks: [callbacks.DPSGD]\n  callbacks: [LearningRateMonitor]\n")
    assert run("--config=twice.yaml").startswith("error: 'trainer' must stand once in its section, got it in lines ")
    assert "'callbacks' must stand once in its section, got it in lines 2 and 3." in run("--config=within.yaml")
    assert "'seed' must stand once" in run("--config=private.yaml", '--model.init_args={"seed": 1, "seed": 2}')


@pytest.mark.parametrize(
    "text", [f"a: {'[' * 100_000}", "a: &a [*a]", "\n".join(f"{k}: &{k} [*{k - 1}, *{k - 1}]" for k in range(1, 40))]
)
def test_a_configuration_without_end_is_one_sentence(run: Run, text: str) -> None:
    Path("endless.yaml").write_text(text.replace("*0, *0", "1"))
    shown = run("--config=endless.yaml")
    assert shown.startswith("error: a configuration must ")
    assert shown.count("\n") == 1
    assert run(f"--model.encoder={text}").startswith("error: ")


@pytest.mark.parametrize("later", [["--config=central.yaml"], ["--model=Central"]])
def test_protection_that_the_model_states_is_not_lost_either(run: Run, later: list[str]) -> None:
    Path("central.yaml").write_text("model: {class_path: Central}\n")
    shown = run("--config=plain.yaml", "--config=in_the_model.yaml", *later)
    assert shown.startswith("error: model.protection must keep model.protection.hidden: "), shown


@pytest.mark.parametrize(
    ("arguments", "lost"),
    [
        (["--config=in_the_model.yaml", "--model.protection.hidden.std=0"], "model.protection.hidden"),
        (["--config=bounded.yaml", "--model.protection.hidden.std=0"], "model.protection.hidden noise"),
        (["--config=bounded.yaml", "--model.protection.hidden.clip=.inf"], "model.protection.hidden bound"),
        (
            ["--config=bounded.yaml", "--config=in_the_model.yaml", "--config=weak.yaml"],
            "model.protection.hidden noise",
        ),
        (["--config=records.yaml", "--model.records=AsTheyAre"], "model.records"),
        (["--config=records.yaml", "--config=as_they_are.yaml"], "model.records"),
    ],
)
def test_nor_is_its_noise_or_its_bound_or_what_records_promise(run: Run, arguments: list[str], lost: str) -> None:
    def model(**options: object) -> str:
        return yaml.safe_dump({"model": {"class_path": "GFL", "init_args": options}})

    Path("bounded.yaml").write_text(model(protection={"hidden": {"std": 1.0, "clip": 1.0}}))
    Path("weak.yaml").write_text(model(protection={"hidden": {"std": 0.0}}))
    Path("records.yaml").write_text(model(records={"class_path": "RandomisedOnce"}))
    Path("as_they_are.yaml").write_text(model(records={"class_path": "AsTheyAre"}))
    shown = run("--config=plain.yaml", *arguments)
    assert shown.startswith(f"error: model.protection must keep {lost}: "), shown


@pytest.mark.parametrize(
    ("stated", "callback", "name"),
    [
        ("--model.protection.hidden.std=2", NOISE, "hidden"),
        ("--model.guarantee.max_epsilon=0.5", {"class_path": "callbacks.PrivacyBudget", **WEAK}, "max_epsilon"),
        ("--model.records=RandomisedOnce", {"class_path": "callbacks.RandomiseOnce", **WEAKER}, "records"),
    ],
)
def test_a_callback_does_not_erase_what_the_model_states(
    run: Run, stated: str, callback: dict[str, object], name: str
) -> None:
    Path("callback.yaml").write_text(yaml.safe_dump({"trainer": {"callbacks": [callback]}}))
    shown = run("--config=plain.yaml", "--config=callback.yaml", stated)
    assert shown.startswith(f"error: {name} must be stated once, by the model or by a callback"), shown


def test_the_sentence_says_what_is_lost_and_which_option_loses_it(run: Run) -> None:
    shown = run("--config=private.yaml", "--config=budget.yaml", "--config", "other.yaml")
    assert "must keep DPNoise, DPNoise.hidden, PrivacyBudget: append" in shown
    assert "got '--config other.yaml'." in shown


@pytest.mark.parametrize(
    ("arguments", "std"),
    [
        (["--config=private.yaml"], 1.0),
        (["--config=private.yaml", "--config=appending.yaml"], 1.0),
        (["--config=private.yaml", "--config=restating.yaml"], 2.0),
        (["--config=private.yaml", "--config=budget.yaml", "--trainer.callbacks.delta=1e-6"], 1.0),
        (["--config=private.yaml", "--trainer.max_steps=1"], 1.0),
        (["--config=private.yaml", "--config=elsewhere.yaml"], 1.0),
        (["--config=plain.yaml", "--config=in_the_model.yaml", "--config=other.yaml"], 1.0),
        (["--config=in_the_model.yaml", "--config=plain.yaml"], 1.0),
    ],
)
def test_what_adds_and_restates_is_not(run: Run, arguments: list[str], std: float) -> None:
    assert run(*arguments) == ""
    assert protection()["hidden"]["std"] == std


def test_the_wandb_overlay_appends() -> None:
    trainer = yaml.safe_load(OVERLAY.read_text())["trainer"]
    assert [callback["class_path"] for callback in trainer["callbacks+"]] == ["callbacks.WandbRounds"]
    assert "callbacks" not in trainer


def test_the_overlay_of_randomised_records_brings_the_model_that_they_ask_for(run: Run) -> None:
    assert run("--config=plain.yaml", f"--config={OVERLAY.with_name('randomise_once.yaml')}") == ""
    (file,) = Path("runs").glob("gfl/*/summary.json")
    summary = json.loads(file.read_text())
    assert (summary["epsilon"], summary["delta"]) == (8.0, 0.0)
    assert summary["parts"]["encoder"]["class_path"].endswith("Linear")
    assert summary["parts"]["aggregator"]["class_path"].endswith("ChosenAPPNP")


def test_a_subclass_states_what_its_parent_does_and_a_function_what_it_returns() -> None:
    noise = {
        "class_path": f"{__name__}.Hidden",
        "init_args": {"update": {"class_path": "gfl_lightning.Gaussian", "init_args": {"std": 1.0}}},
    }
    sys.modules.setdefault(__name__, sys.modules[Hidden.__module__])
    fields = {f"{kind}.update{what}" for kind in ("Hidden", "DPNoise") for what in ("", " noise")}
    assert statements([noise]) == {"Hidden", "DPNoise", *fields}
    assert statements({"class_path": f"{__name__}.hidden"}) == {"Hidden", "DPNoise"}
    assert statements(None) == statements([{"class_path": "pytorch_lightning.callbacks.Timer"}]) == set()
