"""What a checkpoint keeps of a model's options: plain data, of which the parts are built again."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from lit_types import Fit
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor

from gfl_lightning.baselines.networks.gat import GAT
from gfl_lightning.checks import InputError
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.lit.central import Central
from gfl_lightning.lit.checkpoints import model_of
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.local_mlps import LocalMLPs
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.sealed_files import write_sealed


@dataclass(frozen=True)
class Neighbours(Aggregator):
    """An aggregator from outside the package."""

    share: float = 0.5

    @property
    def gamma(self) -> Tensor:
        return torch.tensor([1 - self.share, self.share], dtype=torch.float64)


PARTS: dict[str, Any] = {
    "encoder": MLP((8, 4), "tanh", bias=True),
    "aggregator": LearnablePolynomial(0.2, 3),
    "estimator": "v1",
    "local": LocalTraining(0.1, 2, momentum=0.5),
    "server": FedAdam(0.2),
    "weighting": "samples",
    "participation": Participation(2, 0.5),
    "protection": Protection(hidden=Gaussian(1.0, 2.0), unit="sample"),
    "guarantee": Guarantee(delta=1e-6),
    "seed": 5,
}


def parts(module: GFL) -> dict[str, Any]:
    return {
        "encoder": module.model.encoder.encoder,
        "aggregator": module.model.aggregator,
        "local": module.local,
        "server": module.server,
        "participation": module.participation,
        "protection": module.account.stated,
        "guarantee": module.account.guarantee,
    }


def saved(fit: Fit, folder: Path, **model: Any) -> Path:
    fit(model, max_steps=2, callbacks=[ModelCheckpoint(folder / "c", save_last=True)], enable_checkpointing=True)
    return folder / "c" / "last.ckpt"


def test_all_parts_come_back_from_plain_data(fit: Fit, tmp_path: Path) -> None:
    file = saved(fit, tmp_path, **PARTS)
    options = torch.load(file, weights_only=True)["hyper_parameters"]
    assert options["local"]["init_args"]["momentum"] == 0.5
    assert options["_class_path"] == "gfl_lightning.lit.gfl.GFL"
    loaded = GFL.load_from_checkpoint(file)
    assert parts(loaded) == {name: PARTS[name] for name in parts(loaded)}
    assert (loaded.estimator, loaded.weighting, loaded.seed) == ("v1", "samples", 5)
    assert loaded.hparams == GFL(10, 2, **PARTS).hparams


def test_a_part_from_outside_and_options_given_anew(fit: Fit, tmp_path: Path) -> None:
    file = saved(fit, tmp_path, aggregator=Neighbours(0.3))
    assert GFL.load_from_checkpoint(file, weights_only=True).model.aggregator == Neighbours(0.3)
    again = GFL.load_from_checkpoint(io.BytesIO(file.read_bytes()), "cpu", local=LocalTraining(steps=7))
    assert (again.model.aggregator, again.local.steps) == (Neighbours(0.3), 7)


def test_a_class_that_is_not_loaded_is_not_imported(fit: Fit, tmp_path: Path) -> None:
    file = saved(fit, tmp_path)
    checkpoint = torch.load(file, weights_only=True)
    checkpoint["hyper_parameters"]["aggregator"]["class_path"] = "antigravity.Aggregator"
    write_sealed(checkpoint, file)
    sentence = "a part that is read must be a Aggregator of this program or of a loaded module, got 'antigrav"
    with pytest.raises(InputError, match=sentence):
        GFL.load_from_checkpoint(file)
    with pytest.raises(InputError, match=sentence):
        model_of(checkpoint, [])
    checkpoint["hyper_parameters"]["_class_path"] = "antigravity.Model"
    with pytest.raises(
        InputError, match="ckpt_path must hold a model of this program or of a module that is loaded, got"
    ):
        model_of(checkpoint, [])


def test_a_model_of_a_checkpoint_is_what_a_configuration_names(fit: Fit, tmp_path: Path) -> None:
    found = model_of(torch.load(saved(fit, tmp_path, seed=3), weights_only=True), ["num_features", "num_classes"])
    assert found["class_path"] == "gfl_lightning.lit.gfl.GFL"
    assert found["init_args"]["seed"] == 3
    assert "num_features" not in found["init_args"]


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (Central(10, 2, GAT(hidden=8), seed=2), {"architecture": GAT(hidden=8), "seed": 2}),
        (LocalMLPs(10, 2, 60, hidden=4), {"hidden": 4, "num_clients": 60}),
    ],
)
def test_baselines_come_back_too(module: RoundModule, options: dict[str, Any], tmp_path: Path) -> None:
    trainer = FederatedTrainer(logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu")
    trainer.validate(module, DNC(60, 10), verbose=False)
    trainer.save_checkpoint(tmp_path / "m.ckpt")
    loaded = type(module).load_from_checkpoint(tmp_path / "m.ckpt")
    assert {name: getattr(loaded, name) for name in options} == options
    for name, weight in module.current_weights().items():
        assert torch.equal(loaded.get_parameter(name), weight)
