"""A data set as what Lightning knows: a data module around its client graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pytorch_lightning import LightningDataModule
from pytorch_lightning.trainer.states import TrainerFn

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.fingerprint import fingerprint


class ClientGraphData(LightningDataModule):
    """The client graph of a data set, for a trainer; `FederatedTrainer` wraps a data set in one by itself.

    Rounds take their samples from :attr:`graph`; the loaders only tell Lightning that there is one batch, everything.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> data = ClientGraphData(DNC(num_clients=50))
    >>> data.graph.num_clients, data.state_dict()["class"], data.state_dict()["options"]["init_args"]["num_clients"]
    (50, 'DNC', 50)

    Args:
        data_set: makes or reads the graph.
    """

    def __init__(self, data_set: DataSet) -> None:
        super().__init__()
        require(isinstance(data_set, DataSet), "data_set", "be a data set, which makes a client graph", data_set)
        self.data_set = data_set
        self._trained_on = ""

    @property
    def graph(self) -> ClientGraph:
        """The client graph."""
        return self.data_set.graph

    def setup(self, stage: str) -> None:
        """Lightning's hook: have the graph ready."""
        self.graph  # noqa: B018  # made on first access

    def train_dataloader(self) -> list[int]:
        """One batch, everything."""
        return [0]

    val_dataloader = test_dataloader = predict_dataloader = train_dataloader

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the data set: how it is made, which it is, and what reading others takes."""
        own, options = (
            {"class": type(self.data_set).__name__, "fingerprint": self.fingerprint},
            self.data_set.described(),
        )
        return own | ({} if options is None else {"options": options}) | self.data_set.state_dict()

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the graph."""
        return fingerprint(self.graph)

    @property
    def is_trained_on(self) -> bool:
        """Whether the checkpoint at hand is of a training on these data, with these splits."""
        return self._trained_on == self.fingerprint

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Refuse a checkpoint whose model reads its data in another way, or belongs to other clients or another run."""
        if self.trainer is not None and self.trainer.state.fn == TrainerFn.FITTING:
            rule = f"be the data that the run of the checkpoint began with ({state_dict.get('class')})"
            same = state_dict.get("fingerprint") == self.fingerprint
            require(same, "data", rule, f"others: {self.data_set!r}")
        self._trained_on = str(state_dict.get("fingerprint"))
        module = None if self.trainer is None else self.trainer.lightning_module
        if state_dict.get("class") == type(self.data_set).__name__:
            self.data_set.load_state_dict(state_dict)
            if getattr(module, "models_per_client", False):
                self.data_set.require_clients(state_dict)


def as_datamodule(data: Any) -> Any:
    """A data set as a data module; anything else as it is."""
    return ClientGraphData(data) if isinstance(data, DataSet) else data
