"""The options of the command line, read from its own parser, for tests that must know all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Any

import pytest
from jsonargparse import Namespace
from pytorch_lightning.cli import LightningArgumentParser

from gfl_lightning.lit.failures import mistake_behind
from gfl_lightning.lit.parsing import ConfiguredCLI

Args = list[str]
RAGGED, NODES = ["--data=lit_types.Ragged"], ["--data=DNC", "--data.num_clients=50", "--data.num_features=5"]
BASES = {
    "GFL": ["--model=GFL", *RAGGED],
    "Central": ["--model=Central", *NODES],
    "LocalMLPs": ["--model=LocalMLPs", *RAGGED],
}


@cache
def parser() -> LightningArgumentParser:
    """The parser of the command line."""
    found: list[LightningArgumentParser] = []

    class Parser(ConfiguredCLI):
        def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
            found.append(parser)
            raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["gfl_lightning"])  # no command: the parsers of all of them
        with pytest.raises(InterruptedError):
            Parser()
    return found[0]


def leaves(config: Any, prefix: str = "") -> Iterator[str]:
    """The options of a class in a configuration, as the command line names them; a choice of class is one too."""
    for name, value in config.items():
        inner = value.as_dict() if isinstance(value, Namespace) else value
        if isinstance(inner, dict) and "class_path" in inner:
            yield prefix + name
            yield from leaves(inner.get("init_args", {}), f"{prefix}{name}.")
        elif isinstance(inner, dict):
            yield from leaves(inner, f"{prefix}{name}.")
        else:
            yield prefix + name


def options_of(key: str, *args: str) -> set[str]:
    config = parser().parse_args(["fit", *args]).fit[key].as_dict()
    return set(leaves(config["init_args"]))


def refusal(error: Exception) -> str:
    """The sentence of a user's mistake; anything else is an error of the program."""
    mistake = mistake_behind(error)
    if mistake is None:
        raise error
    return str(mistake)


def kinds_of(base: type) -> Iterator[type]:
    """The classes of this package that stand for a base class."""
    for kind in base.__subclasses__():
        if kind.__module__.startswith("gfl_lightning.") and is_dataclass(kind):
            yield kind
        yield from kinds_of(kind)
