"""Types of fixtures; data sets, parts and callbacks that tests name by their path."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from graph_builders import random_clients
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism
from gfl_lightning.privacy.noise_source import NoiseSource
from gfl_lightning.privacy.randomise.mechanism import Array
from gfl_lightning.privacy.randomise.randomised_response import RandomisedResponse

Fit = Callable[..., tuple[FederatedTrainer, GFL]]


@dataclass(frozen=True, eq=False)
class Given(DataSet):
    """A graph that is there already."""

    given: ClientGraph

    def make(self) -> ClientGraph:
        return self.given


@dataclass(frozen=True, eq=False)
class Ragged(DataSet):
    """Ten clients with one to five samples each."""

    def make(self) -> ClientGraph:
        return random_clients("sc", dtype=torch.float32)


@dataclass(frozen=True)
class Halved(MLP):
    """An encoder from outside the package."""

    def __call__(self, weights: Weights, x: Tensor) -> Tensor:
        return super().__call__(weights, x) / 2

    def structure(self, num_features: int, num_classes: int) -> None:
        return None


@dataclass(frozen=True)
class Uniform(Mechanism):
    """A mechanism from outside the package."""

    width: float = 0.5
    clip: float = math.inf

    @property
    def spread(self) -> float:
        return self.width

    def draw(self, shape: tuple[int, ...], source: NoiseSource) -> Tensor:
        return self.width * (source.uniform(shape) - 0.5)


@dataclass(frozen=True)
class Loud(RandomisedResponse):
    """A mechanism of labels from outside the package, that always answers 0."""

    def draw(self, y: Array, outputs: int, epsilon: float, source: np.random.Generator) -> Array:
        return 0 * y


class Watch(Callback):
    """Writes down what a fit does, for tests that only see the command line."""

    seen: ClassVar[dict[str, Any]] = {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        Watch.seen = {"rounds": 0, "validations": 0}

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        Watch.seen |= {
            "rounds": trainer.global_step,
            "anomalies": torch.is_anomaly_enabled(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "benchmark": torch.backends.cudnn.benchmark,
        }

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        Watch.seen["validations"] += 1

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        durations = getattr(trainer.profiler, "recorded_durations", {})  # type: ignore[attr-defined]
        Watch.seen |= {
            "dtype": next(pl_module.parameters()).dtype,
            "device": next(pl_module.parameters()).device.type,
            "loggers": len(trainer.loggers),
            "saving": type(trainer.strategy.checkpoint_io).__name__,
            "profiled": len(durations.get("[LightningModule]GFL.training_step", [])),
        }


class StopAtTwo(Callback):
    """Asks for an end after two rounds."""

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        trainer.should_stop = trainer.global_step >= 2
