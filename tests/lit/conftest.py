"""A small fit, made quickly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lit_types import Fit

from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.encoders.mlp import MLP


@pytest.fixture
def data() -> DNC:
    return DNC(num_clients=60, num_features=10)


@pytest.fixture
def fit(data: DNC, tmp_path: Path) -> Fit:
    """Fit GFL for some rounds; keywords of the model are given as ``model``, of the fit as ``fit``."""

    def run(
        model: dict[str, Any] | None = None, fit: dict[str, Any] | None = None, **trainer: Any
    ) -> tuple[FederatedTrainer, GFL]:
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        made = FederatedTrainer(
            **quiet | {"enable_model_summary": False, "accelerator": "cpu", "default_root_dir": tmp_path} | trainer
        )
        module = GFL(10, 2, **{"encoder": MLP((8,)), "local": LocalTraining(steps=2)} | (model or {}))
        made.fit(module, data, **fit or {})
        return made, module

    return run
