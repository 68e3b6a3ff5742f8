"""Small fits under a finite ε, for tests of their account."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.callbacks import Callback

from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian

QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
}
NOISE: dict[str, Any] = {"hidden": Gaussian(30.0, 1.0), "jacobian": Gaussian(40.0, 1.0), "update": Gaussian(10.0, 0.5)}
TOLD = {**NOISE, "validation": Gaussian(20.0, 1.0)}
DATA = DNC(num_clients=60, num_features=10)


def model(**options: Any) -> GFL:
    return GFL(10, 2, MLP((8,)), **{"local": LocalTraining(steps=2), **options})


def fit(module: GFL, callbacks: list[Callback], rounds: int = 6, source: DataSet = DATA, **trainer: Any) -> GFL:
    ckpt_path = trainer.pop("ckpt_path", None)
    made = FederatedTrainer(max_steps=rounds, callbacks=callbacks, **QUIET | trainer)
    made.fit(module, source, ckpt_path=ckpt_path)
    return module


def epsilon(module: GFL) -> float:
    assert module.privacy is not None
    return module.privacy.epsilon
