"""A LightningModule that predicts on client graphs: its weights are parameters, its evaluation is a predictor's."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, TypeVar

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn

from gfl_lightning.checks import require
from gfl_lightning.engine.engine import Predictor
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.placement import Placement
from gfl_lightning.lit.checkpoint_layout import require_layout
from gfl_lightning.lit.options import rebuilt
from gfl_lightning.lit.restoring import taking_up
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.reports.conformal import half_width
from gfl_lightning.sealed_files import read_sealed

M = TypeVar("M", bound="PredictingModule")


class PredictingModule(LightningModule):
    """Weights under the names that predictors know them by, and `validate`, `test` and `predict` with them.

    Args:
        weights: by name; a dot in a name is a module within a module.
        num_features: d.
        num_classes: c.
    """

    models_per_client = False
    """Whether every client has a model of its own, so that a checkpoint is for its clients alone."""

    def __init__(self, weights: Weights, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.num_features, self.num_classes = num_features, num_classes
        self._predictor: Predictor | None = None
        self.half_width: float | None = None
        self.loaded_from: Path | None = None
        for name, weight in weights.items():
            _register(self, name, weight)

    @abstractmethod
    def predictor_on(self, graph: ClientGraph) -> Predictor:
        """What predicts on a graph, also where nobody trains."""

    @abstractmethod
    def round_of_the_parameters(self) -> int:
        """The round that left the parameters: what is shared to evaluate them is protected as in that round."""

    @property
    def graph(self) -> ClientGraph:
        """The client graph of the data, on the module's device and in its precision."""
        data = getattr(self.trainer, "datamodule", None)
        require(hasattr(data, "graph"), "datamodule", "be a data set, which makes a client graph", data)
        assert data is not None
        parameter = next(self.parameters())
        return data.graph.to(parameter.device).to(parameter.dtype)

    @property
    def placement(self) -> Placement | None:
        """Where the clients of the data stand in the network of the training; ``None``: they are a network."""
        data = getattr(self._trainer, "datamodule", None)
        return getattr(getattr(data, "data_set", None), "placement", None)

    @property
    def checkpoint_folders(self) -> list[Path]:
        """Where the checkpoint may be that the module was loaded from."""
        named = None if self._trainer is None else self.trainer.ckpt_path
        return [Path(file).parent for file in (self.loaded_from, named) if file is not None]

    def require_fit(self, graph: ClientGraph) -> None:
        """Refuse a graph of other sizes than the model's."""
        found, own = (graph.num_features, graph.num_classes), (self.num_features, self.num_classes)
        require(found == own, "graph", f"have {own[0]} features and {own[1]} classes, as the model has", graph)

    def current_weights(self) -> Weights:
        """The parameters by name, without gradients."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}

    def holds(self, weights: Weights) -> bool:
        """Whether the parameters are these weights, of which there must be some."""
        now = self.current_weights()
        return bool(weights) and all(torch.equal(now[name], weight) for name, weight in weights.items())

    def set_parameters(self, weights: Weights) -> None:
        """Copy weights into the parameters, which callbacks may overwrite; they take their layout: copying is cheap."""
        for name, weight in weights.items():
            parameter = self.get_parameter(name)
            if parameter.stride() == weight.stride():
                parameter.data.copy_(weight)
            else:
                parameter.data = weight.to(parameter, copy=True)

    @property
    def predictor(self) -> Predictor:
        """What predicts on the data at hand."""
        assert self._predictor is not None, "there is something that predicts once data are set up"
        return self._predictor

    def predict_logits(self) -> Tensor:
        """Logits of every sample at the parameters ``[S, c]``."""
        return self.predictor.logits_of(self.current_weights(), self.round_of_the_parameters())

    def evaluate(self) -> dict[str, Metrics]:
        """Metrics on each split at the parameters."""
        return self.predictor.metrics_of(self.current_weights(), self.round_of_the_parameters())

    def validation_step(self, batch: int, batch_idx: int) -> None:
        """`validate`: metrics of the parameters on the validation samples."""
        self._log_metrics("val")

    def test_step(self, batch: int, batch_idx: int) -> None:
        """`test`: metrics of the parameters on the test samples."""
        self._log_metrics("test")

    def predict_step(self, batch: int, batch_idx: int) -> Tensor:
        """`predict`: class probabilities of every sample ``[S, c]``, or its number ``[S, 1]``."""
        return self.prediction()

    def prediction(self) -> Tensor:
        """Class probabilities of every sample at the parameters ``[S, c]``, or its number ``[S, 1]``."""
        return self.predictor.graph.loss.link(self.predict_logits()).cpu()

    def calibrate(self) -> None:
        """Find how wide the intervals of predicted numbers must be, from validation samples; nothing for classes."""
        graph = self.graph
        if graph.loss.of_numbers:
            self.half_width = half_width(graph.to("cpu"), self.prediction())

    def _log_metrics(self, split: str) -> None:
        metrics = self.evaluate()[split]
        self.log_dict({f"{split}_{name}": value for name, value in vars(metrics).items()}, batch_size=1)

    @classmethod
    def load_from_checkpoint(
        cls: type[M],
        checkpoint_path: Any,
        map_location: Any = None,
        hparams_file: Any = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        **options: Any,
    ) -> M:
        """A module from a checkpoint, its parts built from their descriptions; ``options`` replace some of its own.

        Lightning's function of the same name imports what a file tells it to; this one imports nothing.
        """
        require(hparams_file is None, "hparams_file", "be left out, as a checkpoint holds its options", hparams_file)
        require(weights_only is not False, "weights_only", "not be false, as a checkpoint runs no code", weights_only)
        checkpoint = read_sealed(checkpoint_path, "checkpoint_path")
        require_layout(checkpoint, "checkpoint_path")
        with taking_up("checkpoint_path"):
            module = cls(**rebuilt(cls, checkpoint["hyper_parameters"]) | options)
            module.loaded_from = Path(checkpoint_path) if isinstance(checkpoint_path, (str, Path)) else None
            module.on_load_checkpoint(checkpoint)
            module.load_state_dict(checkpoint["state_dict"], strict=strict is not False)
        return module if map_location is None else module.to(map_location)


def _register(module: nn.Module, name: str, weight: Tensor) -> None:
    """Make a weight a parameter under its name."""
    outer, _, inner = name.partition(".")
    if not inner:
        module.register_parameter(name, nn.Parameter(weight, requires_grad=False))
        return
    if outer not in dict(module.named_children()):
        module.add_module(outer, nn.Module())
    _register(module.get_submodule(outer), inner, weight)
