"""A configuration file with changes: what a study trains, on which data and for how many rounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gfl_lightning.checks import require

CONFIGS = Path(__file__).parents[2] / "configs"
Options = Mapping[str, Any]
NOTHING = ".inf"
"""ε = ∞ in a configuration, where JSON has no number for it."""


@dataclass(frozen=True)
class Experiment:
    """Model, data and rounds as plain nested data; two with the same content are equal.

    >>> base = Experiment.read("paper/dnc_synthetic")
    >>> other = base.with_steps(50).changed(model={"estimator": "v1"}, data={"num_clients": 40})
    >>> other.rounds, other.updates, other.data_options
    (60, 3000, {'num_clients': 40})

    Args:
        text: ``{"rounds": …, "model": {class_path, init_args}, "data": …}`` as JSON with sorted keys.
    """

    text: str

    @classmethod
    def read(cls, name: str) -> Experiment:
        """The configuration ``name`` of the folder configs, such as ``paper/dnc_synthetic``."""
        config = _config(name)
        require(set(config["trainer"]) == {"max_steps"}, f"trainer of {name}", "be max_steps alone", config["trainer"])
        parts = {part: {"init_args": {}} | config[part] for part in ("model", "data")}
        return cls._of({"rounds": config["trainer"]["max_steps"], **parts})

    @classmethod
    def _of(cls, content: Options) -> Experiment:
        return cls(json.dumps(content, sort_keys=True))

    def changed(
        self, rounds: int | None = None, model: Options | None = None, data: Options | None = None
    ) -> Experiment:
        """The same with other rounds, or other options of the model and of the data, merged into those there are."""
        content = self.content
        for part, options in (("model", model), ("data", data)):
            content[part] = merged(content[part], {"init_args": options or {}})
        return self._of(content | ({} if rounds is None else {"rounds": rounds}))

    def with_steps(self, steps: int) -> Experiment:
        """The same number of updates with I local steps in each round."""
        return self.changed(max(1, self.updates // steps), {"local": {"steps": steps}})

    def on(self, other: Experiment) -> Experiment:
        """The same model on the data of another experiment."""
        return self._of(self.content | {"data": other.content["data"]})

    def with_data(self, name: str, options: Options) -> Experiment:
        """The same model on another data set."""
        return self._of(self.content | {"data": {"class_path": name, "init_args": dict(options)}})

    @property
    def content(self) -> dict[str, Any]:
        """All of it, as plain nested containers."""
        content: dict[str, Any] = json.loads(self.text)
        return content

    @property
    def rounds(self) -> int:
        """Communication rounds, or updates where there is no communication."""
        return int(self.content["rounds"])

    @property
    def model(self) -> str:
        """The name of the model's class."""
        return _class_of(self.content["model"])

    @property
    def model_options(self) -> dict[str, Any]:
        """What is stated of the model."""
        return _options_of(self.content["model"])

    @property
    def data(self) -> str:
        """The name of the data set's class."""
        return _class_of(self.content["data"])

    @property
    def data_options(self) -> dict[str, Any]:
        """What is stated of the data set."""
        return _options_of(self.content["data"])

    @property
    def needs_cora(self) -> bool:
        """Whether Cora's files are needed."""
        return self.data in ("SubCora", "Planetoid")

    @property
    def architecture(self) -> str:
        """The name of a centralised network's class."""
        return _class_of(self.model_options["architecture"])

    @property
    def lr(self) -> float:
        """η."""
        return float(self._training["lr"])

    @property
    def batch_size(self) -> int | None:
        """Samples per update and client; ``None`` means all."""
        return self._training.get("batch_size")

    @property
    def steps(self) -> int:
        """I, updates in a round."""
        return int(self._training.get("steps", 1))

    @property
    def updates(self) -> int:
        """T."""
        return self.rounds * self.steps

    @property
    def epsilon(self) -> float | None:
        """The finite ε that is promised: of all rounds together, or of records that are randomised once."""
        options = self.model_options
        records = options.get("records", {}).get("init_args", {}).get("epsilon")
        promised = options.get("guarantee", {}).get("max_epsilon") if records is None else records
        return None if promised in (None, NOTHING) else float(promised)

    @property
    def _training(self) -> dict[str, Any]:
        """The options that say how weights are updated, which a federation nests."""
        options = self.model_options
        return options.get("local", options)


def merged(base: Options, change: Options) -> dict[str, Any]:
    """Nested options with others put in; one that names another class takes the place of the whole part.

    >>> merged({"class_path": "A", "init_args": {"a": 1}}, {"init_args": {"b": 2}})
    {'class_path': 'A', 'init_args': {'a': 1, 'b': 2}}
    >>> merged({"class_path": "A", "init_args": {"a": 1}}, {"class_path": "B"})
    {'class_path': 'B'}
    """
    if change.get("class_path", base.get("class_path")) != base.get("class_path"):
        return dict(change)
    result = dict(base)
    for name, value in change.items():
        before = result.get(name)
        nested = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[name] = merged(before, value) if nested else value  # type: ignore[arg-type]  # both are mappings
    return result


@cache
def _config(name: str) -> dict[str, Any]:
    file = CONFIGS / f"{name}.yaml"
    require(file.is_file(), "reproduce", "be run from a checkout, whose folder configs it reads", str(file))
    config: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return config


def _class_of(part: Options) -> str:
    return str(part["class_path"]).rpartition(".")[2]


def _options_of(part: Options) -> dict[str, Any]:
    return dict(part["init_args"])
