"""What may leave of a private run: weights, ε, δ, unit and adversary, and no byte of anything else."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint

from callbacks import DPNoise, PrivacyBudget, RandomiseOnce
from gfl_lightning.__main__ import COMMANDS
from gfl_lightning.checks import InputError
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.lit import exporting
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.aggregators.chosen_appnp import ChosenAPPNP
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.personal.own_level import OwnLevel
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.sealed_files import read_sealed, write_sealed

QUIET: dict[str, Any] = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
}
NOISE: dict[str, Any] = {"hidden": Gaussian(30.0, 1.0), "jacobian": Gaussian(40.0, 1.0), "update": Gaussian(10.0, 0.5)}
DATA = DNC(num_clients=60, num_features=10)


def trained(folder: Path, callbacks: list[Callback], **options: Any) -> tuple[GFL, Path]:
    """A model after three rounds, and its checkpoint."""
    saving = ModelCheckpoint(folder, every_n_train_steps=3, filename="three")
    module = GFL(10, 2, MLP((8,)), **{"local": LocalTraining(0.123, steps=2), "seed": 4711, **options})
    FederatedTrainer(max_steps=3, callbacks=[*callbacks, saving], **QUIET).fit(module, DATA)
    return module, folder / "three.ckpt"


def test_an_exported_file_holds_what_was_released_and_nothing_else(tmp_path: Path) -> None:
    module, file = trained(tmp_path, [DPNoise(**NOISE)])
    told = exporting.export(file, tmp_path / "public.ckpt")
    assert module.privacy is not None
    assert told == {
        "epsilon": module.privacy.epsilon,
        "delta": 1e-5,
        "unit": "one client's whole data set, replaced by any other",
        "adversary": "the server, who sees every upload, and whoever sees less",
    }
    held = read_sealed(str(tmp_path / "public.ckpt"), "file")
    assert held["privacy"] == told
    weights = module.state_dict()
    assert {name: part.tolist() for name, part in held["state_dict"].items()} == {
        name: part.tolist() for name, part in weights.items()
    }
    plain = GFL(10, 2, MLP((8,)))
    assert held["hyper_parameters"] == dict(plain.hparams)
    assert held["rounds"]["best"]["round"] == held["global_step"] == 0
    assert not held["rounds"]["metrics"] | held["rounds"]["progress"] | held["rounds"]["totals"]
    assert set(held) == {
        "global_step",
        "pytorch-lightning_version",
        "state_dict",
        "loops",
        "hyper_parameters",
        "rounds",
        "privacy",
    }


def test_its_bytes_hold_no_number_of_the_run(tmp_path: Path) -> None:
    """Two runs that end at the same weights and ε leave the same file, whatever else they saw."""
    module, file = trained(tmp_path, [DPNoise(**NOISE)])
    exporting.export(file, tmp_path / "public.ckpt")
    checkpoint = read_sealed(str(file), "file")
    other = checkpoint | {
        "shared": checkpoint["shared"] + 1,
        "callbacks": {"Mine": {"loss": 0.125}},
        "rounds": checkpoint["rounds"]
        | {"metrics": {"val_loss": 0.5}, "seconds": 9.5, "curve": checkpoint["rounds"]["curve"] + 1},
        "protection": checkpoint["protection"] | {"seed": 1, "noise_key": "0" * 16},
    }
    other["hyper_parameters"] = other["hyper_parameters"] | {"seed": 1, "noise_seed": 2}
    exporting.write_sealed(other, tmp_path / "other.ckpt")
    exporting.export(tmp_path / "other.ckpt", tmp_path / "another.ckpt")
    blobs = [(tmp_path / name).read_bytes() for name in ("public.ckpt", "another.ckpt")]
    assert blobs[0] == blobs[1]
    entries = zipfile.ZipFile(io.BytesIO(blobs[0]))
    stored = sum(info.file_size for info in entries.infolist() if "/data/" in info.filename)
    assert stored == sum(part.numel() * part.element_size() for part in module.state_dict().values())
    for secret in (module.noise_key.name, str(module.seed), json.dumps(module.round_metrics["val_loss"]), "0.123"):
        assert secret.encode() not in blobs[0]


def test_its_reader_predicts_and_does_not_resume(tmp_path: Path) -> None:
    module, file = trained(tmp_path, [DPNoise(**NOISE)])
    exporting.export(file, tmp_path / "public.ckpt")
    reader = GFL.load_from_checkpoint(tmp_path / "public.ckpt")
    theirs = DATA.repeated(1)
    trainer = FederatedTrainer(enable_checkpointing=False, **QUIET)
    found = trainer.predict(reader, theirs)
    plain = GFL(10, 2, MLP((8,)))
    plain.load_state_dict(module.state_dict())
    expected = trainer.predict(plain, theirs)
    assert found is not None
    assert expected is not None
    assert torch.equal(found[0], expected[0])
    fitting = FederatedTrainer(max_steps=5, enable_checkpointing=False, callbacks=[DPNoise(**NOISE)], **QUIET)
    with pytest.raises(InputError, match="ckpt_path must hold a state that this run can take up"):
        fitting.fit(GFL(10, 2, MLP((8,))), DATA, ckpt_path=tmp_path / "public.ckpt")
    warm = GFL.load_from_checkpoint(tmp_path / "public.ckpt")
    again = FederatedTrainer(max_steps=2, enable_checkpointing=False, callbacks=[DPNoise(**NOISE)], **QUIET)
    again.fit(warm, DATA)
    assert warm.privacy is not None
    assert warm.privacy.gaps == ("W̄₀ (neither the seed's weights nor declared public)",)


def test_randomised_records_promise_what_they_do(tmp_path: Path) -> None:
    _, file = trained(tmp_path, [RandomiseOnce(epsilon=4.0)])
    told = exporting.export(file, tmp_path / "public.ckpt")
    assert (told["epsilon"], told["delta"]) == (4.0, 0.0)
    assert GFL.load_from_checkpoint(tmp_path / "public.ckpt").records.epsilon == 4.0


def test_an_exported_model_aggregates_as_was_chosen(tmp_path: Path) -> None:
    offered = ChosenAPPNP(alphas=(0.9, 0.1), depths=(1, 4), rounds=2)
    module, file = trained(tmp_path, [RandomiseOnce(epsilon=20.0)], aggregator=offered)
    exporting.export(file, tmp_path / "public.ckpt")
    loaded = GFL.load_from_checkpoint(tmp_path / "public.ckpt")
    assert loaded.model.aggregator == module.model.aggregator
    assert loaded.model.aggregator in offered.candidates


@pytest.mark.parametrize(
    ("callbacks", "options", "reason"),
    [
        ([], {}, r"ckpt_path must be a checkpoint of a run with a privacy account"),
        ([DPNoise(hidden=Gaussian(1.0))], {}, r"of a run with a finite epsilon \(unprotected: ĥ_j \(no bound\), "),
        ([DPNoise(**NOISE)], {"noise_seed": 3}, r"a finite epsilon \(unprotected: all noise \(drawn from a seed"),
        (
            [DPNoise(**NOISE), PrivacyBudget(selection="exact")],
            {},
            r"were chosen inside .*, got 'the choice",
        ),
        (
            [DPNoise(**NOISE), ModelCheckpoint(monitor="val_loss")],
            {},
            r"chosen inside .*, got 'which checkpoints are",
        ),
    ],
)
def test_what_promises_nothing_is_refused_with_the_reason(
    callbacks: list[Callback], options: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where a checkpoint without a folder goes
    _, file = trained(tmp_path, callbacks, **options)
    with pytest.raises(InputError, match=reason):
        exporting.export(file, tmp_path / "public.ckpt")
    assert not (tmp_path / "public.ckpt").exists()


def test_options_that_are_not_there_are_named(tmp_path: Path) -> None:
    _, file = trained(tmp_path, [DPNoise(**NOISE)])
    held = read_sealed(str(file), "ckpt_path")
    del held["hyper_parameters"]["encoder"]
    write_sealed(held, tmp_path / "other.ckpt")
    with pytest.raises(InputError, match="ckpt_path must hold every option that reads its weights, got 'none of enc"):
        exporting.export(tmp_path / "other.ckpt", tmp_path / "public.ckpt")


@pytest.mark.parametrize(("name", "value"), [("unit", {"a": 1}), ("delta", None), ("epsilon", True), ("adversary", 3)])
def test_a_promise_of_other_kinds_is_none(tmp_path: Path, name: str, value: object) -> None:
    _, file = trained(tmp_path, [DPNoise(**NOISE)])
    held = read_sealed(str(file), "ckpt_path")
    held["privacy"][name] = value
    write_sealed(held, tmp_path / "other.ckpt")
    with pytest.raises(InputError, match="ckpt_path must be a checkpoint of a run with a privacy account"):
        exporting.export(tmp_path / "other.ckpt", tmp_path / "public.ckpt")


def test_what_a_promise_leaves_out_is_a_list(tmp_path: Path) -> None:
    _, file = trained(tmp_path, [DPNoise(**NOISE)])
    held = read_sealed(str(file), "ckpt_path")
    held["privacy"]["outside"] = True
    write_sealed(held, tmp_path / "other.ckpt")
    with pytest.raises(InputError, match="ckpt_path must list what its promise leaves out"):
        exporting.export(tmp_path / "other.ckpt", tmp_path / "public.ckpt")


def test_weights_that_are_not_of_the_options_are_refused(tmp_path: Path) -> None:
    _, file = trained(tmp_path, [DPNoise(**NOISE)])
    held = read_sealed(str(file), "ckpt_path")
    for weights in (held["state_dict"], held["rounds"]["best"]["weights"]):
        weights["W3"] = weights.pop("W2")
    write_sealed(held, tmp_path / "other.ckpt")
    with pytest.raises(InputError, match="ckpt_path must hold weights of its own options"):
        exporting.export(tmp_path / "other.ckpt", tmp_path / "public.ckpt")
    assert not (tmp_path / "public.ckpt").exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, file = trained(tmp_path, [DPNoise(**NOISE)])
    assert COMMANDS["export"] == ("gfl_lightning.lit.exporting",)
    exporting.main(["--ckpt_path", str(file), "--out", str(tmp_path / "public.ckpt")])
    assert "δ = 1e-05; unit: one client's whole data set, replaced by any other" in capsys.readouterr().out
    again = ["--ckpt_path", str(file), "--out", str(tmp_path / "public.ckpt")]
    wrong = ["out must be a file that does not exist yet", "Unrecognized arguments: --nope.", "The following arguments"]
    for arguments, sentence in zip((again, [*again, "--nope"], again[:2]), wrong, strict=True):
        with pytest.raises(SystemExit) as refused:
            exporting.main(arguments)
        assert refused.value.code == 2
        error = capsys.readouterr().err
        assert (error.startswith(f"error: {sentence}"), error.count("\n")) == (True, 1)


@pytest.mark.parametrize("terms", [{}, {"gate": torch.ones(3), "B": torch.zeros(3, 2, 1)}])
def test_terms_of_other_clients_than_those_that_shared_are_refused(
    tmp_path: Path, terms: dict[str, torch.Tensor]
) -> None:
    _, file = trained(tmp_path, [], personal=OwnLevel())
    held = read_sealed(str(file), "ckpt_path")
    held.pop("terms")
    write_sealed(held | ({"terms": terms} if terms else {}), tmp_path / "other.ckpt")
    with pytest.raises(InputError, match="ckpt_path must hold personal terms of all 60 clients that shared, got"):
        GFL.load_from_checkpoint(tmp_path / "other.ckpt")
