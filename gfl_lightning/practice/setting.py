"""The configuration of a fit as `compare` and `tune` use it: data that are split anew, models that differ in parts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from jsonargparse import ArgumentParser, Namespace

from gfl_lightning.checks import InputError, require
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.parsing import KNOWN as KNOWN_PARTS  # imported so that short names find them
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.parts import CLASS, OPTIONS
from gfl_lightning.stated_once import load_yaml

ROUNDS = 300

PRIVATE = ("DPNoise", "DPSGD", "PrivacyBudget", "RandomiseOnce", "RandomisedOnce")


@dataclass(frozen=True)
class Setting:
    """What a configuration file says of data and model.

    >>> setting = Setting({"class_path": "DNC", "init_args": {"num_clients": 50}}, {"class_path": "GFL"}, 10)
    >>> setting.with_options({"local.lr": 0.1}).model["init_args"]
    {'local': {'lr': 0.1}}

    Args:
        data: class and options of the data set.
        model: class and options of the model, a GFL.
        rounds: at most so many.
    """

    data: dict[str, Any]
    model: dict[str, Any]
    rounds: int = ROUNDS

    @classmethod
    def read(cls, path: str | Path) -> Setting:
        """From a configuration of `fit`."""
        require(Path(path).is_file(), "--config", "name a file", str(path))
        try:
            given = load_yaml(Path(path).read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as broken:
            raise InputError(f"--config must be a YAML file, got {str(path)!r} ({type(broken).__name__}).") from broken
        require(isinstance(given, dict), "--config", "hold a configuration of fit", str(path))
        data, model = (_described(given.get(name), name) for name in ("data", "model"))
        trainer = given.get("trainer") or {}
        require(isinstance(trainer, dict), "trainer", "hold options by name", trainer)
        callbacks = trainer.get("callbacks") or []
        for callback in callbacks if isinstance(callbacks, list) else [callbacks]:
            name = str(_described(callback, "trainer.callbacks")[CLASS])
            private = name.rpartition(".")[2] in PRIVATE
            require(not private, "trainer.callbacks", "protect nothing here, as every run would spend of it", name)
        if "records" in (model.get(OPTIONS) or {}):
            records = str(_described(model[OPTIONS]["records"], "model.records")[CLASS])
            private = records.rpartition(".")[2] in PRIVATE
            require(not private, "model.records", "protect nothing here, as every run would spend of it", records)
        rounds = trainer.get("max_steps", ROUNDS)
        require(type(rounds) is int and rounds >= 1, "trainer.max_steps", "be a number of rounds", rounds)
        found = cls(data, model, rounds)
        kind = model[CLASS].rpartition(".")[2]
        require(kind == GFL.__name__, "model", "be GFL, which others are compared with", kind)
        return found

    def with_options(self, options: Mapping[str, Any]) -> Setting:
        """The same with some options of the model set, by their names with dots; a part is a class and its options."""
        model = copy.deepcopy(self.model)
        for name, value in options.items():
            place = model.setdefault(OPTIONS, {})
            *outer, last = name.split(".")
            for part in outer:
                place = place.setdefault(part, {})
                place = place.setdefault(OPTIONS, {}) if CLASS in place else place
            place[last] = value
        return Setting(self.data, model, self.rounds)

    def with_data(self, **options: Any) -> Setting:
        """The same with some options of the data set."""
        data = {**self.data, OPTIONS: {**self.data.get(OPTIONS, {}), **options}}
        return Setting(data, self.model, self.rounds)

    def data_set(self) -> DataSet:
        """The data set."""
        return _built(DataSet, self.data)

    def gfl(self, graph: ClientGraph, seed: int) -> GFL:
        """The model for the sizes of a graph."""
        sizes = {"num_features": graph.num_features, "num_classes": graph.num_classes, "seed": seed}
        model = _built(RoundModule, {**self.model, OPTIONS: {**self.model.get(OPTIONS, {}), **sizes}})
        assert isinstance(model, GFL)
        inert = not model.account.protects
        require(inert, "model.protection", "protect nothing here, as every run would spend of it", model.account.stated)
        return model


def _described(part: Any, name: str) -> dict[str, Any]:
    """A part as its class and options."""
    described: Any = {CLASS: part} if isinstance(part, str) else part
    fits = isinstance(described, dict) and isinstance(described.get(CLASS), str)
    require(fits, name, "name a class (class_path) in the configuration", part)
    options = described.get(OPTIONS) or {}
    require(isinstance(options, dict), f"{name}.{OPTIONS}", "hold options by name", options)
    return {CLASS: described[CLASS], OPTIONS: options}


def _built(kind: Any, description: dict[str, Any]) -> Any:
    """The object of a class path and nested options, read as the command line reads them."""
    parser, read = _read(kind, yaml.safe_dump(description))
    return parser.instantiate(read.clone())["part"]


@lru_cache(maxsize=64)
def _read(kind: Any, description: str) -> tuple[ArgumentParser, Namespace]:
    """A parser, and what it makes of a description: that takes ten times longer than to make the object of it."""
    assert KNOWN_PARTS
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(kind, "part")
    return parser, parser.parse_object({"part": yaml.safe_load(description)})
