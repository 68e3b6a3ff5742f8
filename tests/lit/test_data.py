"""A data set wherever Lightning takes data, and what a checkpoint keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from graph_builders import random_clients
from protected_fits import QUIET

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.lit.data import ClientGraphData
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.local_mlps import LocalMLPs
from gfl_lightning.lit.rounds import FederatedTrainer


@dataclass(frozen=True)
class Remembering(DataSet):
    """Says what it is; refuses another word, and other clients where each has its model."""

    word: str = "a"
    clients: str = "b"

    def make(self) -> ClientGraph:
        return random_clients("sc", dtype=torch.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"word": self.word, "clients": self.clients}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if state_dict["word"] != self.word:
            raise InputError("word must be another.")

    def require_clients(self, state_dict: Mapping[str, Any]) -> None:
        if state_dict["clients"] != self.clients:
            raise InputError("clients must be others.")


def test_every_method_of_the_trainer_takes_a_data_set_by_place_and_by_name() -> None:
    data, made = DNC(60, 10), []
    for place, name in (((data,), {}), ((), {"datamodule": data}), ((ClientGraphData(data),), {})):
        trainer, model = FederatedTrainer(max_steps=3, **QUIET), GFL(10, 2)
        trainer.fit(model, *place, **name)
        validated = trainer.validate(model, *place, verbose=False, **name)
        tested = trainer.test(model, *place, verbose=False, **name)
        (probability,) = trainer.predict(model, *place, **name)
        made.append([validated, tested, probability.tolist()])
        assert isinstance(trainer.datamodule, ClientGraphData)  # type: ignore[attr-defined]
        assert trainer.datamodule.data_set is data  # type: ignore[attr-defined]
    assert made[0] == made[1] == made[2]


def test_a_checkpoint_keeps_the_class_and_state_of_the_data_set(tmp_path: Path) -> None:
    trainer = FederatedTrainer(max_steps=2, **QUIET)
    trainer.fit(LocalMLPs(6, 3, 10), Remembering())
    trainer.save_checkpoint(tmp_path / "m.ckpt")
    kept = torch.load(tmp_path / "m.ckpt", weights_only=True)["ClientGraphData"]
    assert {name: kept[name] for name in ("class", "word", "clients")} == {
        "class": "Remembering",
        "word": "a",
        "clients": "b",
    }
    assert kept["options"]["init_args"] == {"word": "a", "clients": "b"}


@pytest.mark.parametrize(
    ("model", "data", "sentence"),
    [
        (GFL(6, 3), Remembering("z"), "word must be another"),
        (GFL(6, 3), Remembering("a", "z"), None),
        (LocalMLPs(6, 3, 10), Remembering("a", "z"), "clients must be others"),
        (LocalMLPs(6, 3, 10), Remembering(), None),
    ],
)
def test_a_data_set_may_refuse_a_checkpoint(model: Any, data: DataSet, sentence: str | None, tmp_path: Path) -> None:
    trainer = FederatedTrainer(max_steps=2, **QUIET)
    trainer.fit(model, Remembering())
    trainer.save_checkpoint(tmp_path / "m.ckpt")
    test = FederatedTrainer(**QUIET)
    if sentence is None:
        test.test(model, data, ckpt_path=tmp_path / "m.ckpt", verbose=False)
    else:
        with pytest.raises(InputError, match=sentence):
            test.test(model, data, ckpt_path=tmp_path / "m.ckpt", verbose=False)


def test_what_is_no_data_set_is_refused() -> None:
    with pytest.raises(InputError, match="data_set must be a data set, which makes a client graph, got"):
        ClientGraphData(DNC(60, 10).graph)  # type: ignore[arg-type]
