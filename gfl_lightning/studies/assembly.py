"""What an experiment describes becomes objects: the data set and the model."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from jsonargparse import ArgumentParser

from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.citations import Citations
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.planetoid import Planetoid
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.datasets.snc import SNC
from gfl_lightning.graphs.datasets.subcora import SubCora
from gfl_lightning.lit.central import Central
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.local_mlps import LocalMLPs
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.studies.cell import Cell

KNOWN = (DNC, SNC, SC, SubCora, Planetoid, Citations, GFL, Central, LocalMLPs)  # imported so that short names find them


def graph_of(cell: Cell) -> ClientGraph:
    """The client graph of a cell's repetition."""
    return _draw(json.dumps(cell.experiment.content["data"]), cell.repetition)


def model_of(cell: Cell, graph: ClientGraph) -> RoundModule:
    """The model of a cell, for the sizes of its graph."""
    stated = cell.experiment.content["model"]
    sizes = {"num_features": graph.num_features, "num_classes": graph.num_classes}
    if cell.experiment.model == LocalMLPs.__name__:
        sizes["num_clients"] = graph.num_clients
    options = {**stated["init_args"], "seed": cell.seed, **sizes}
    if cell.experiment.model == GFL.__name__:
        options["noise_seed"] = cell.seed  # a study can be repeated; it is not private
    return _built(RoundModule, {**stated, "init_args": options})


@lru_cache(maxsize=64)
def _draw(data: str, repetition: int) -> ClientGraph:
    return _data_set(data).repeated(repetition).graph


@lru_cache(maxsize=64)
def _data_set(data: str) -> DataSet:
    return _built(DataSet, json.loads(data))


def _built(kind: type[Any], description: dict[str, Any]) -> Any:
    """The object of a class path and nested options, read as the command line reads them."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(kind, "part")
    return parser.instantiate(parser.parse_object({"part": description}))["part"]
