"""YAML in which a name stands once: where one stands twice in a section, YAML keeps the last value without a word."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import yaml  # type: ignore[import-untyped]

from gfl_lightning.checks import InputError, require

MERGED = "<<"  # takes in the options of another section, as often as one likes
MOST = 10**6


def load_yaml(text: str) -> Any:
    """What a text in YAML says; a name that stands twice is refused.

    >>> load_yaml("trainer: {max_steps: 3}")
    {'trainer': {'max_steps': 3}}
    """
    require_names_once(text)
    return yaml.safe_load(text)


def require_names_once(text: str) -> None:
    r"""Refuse a name that stands twice in a section, such as callbacks that would erase those above, and no end.

    >>> require_names_once("trainer:\n  callbacks: [A]\n  callbacks: [B]")
    Traceback (most recent call last):
    gfl_lightning.checks.InputError: 'callbacks' must stand once in its section, got it in lines 2 and 3.
    """
    with suppress(yaml.YAMLError):  # whoever reads it says what is wrong
        try:
            size = _size(yaml.compose(text, Loader=yaml.SafeLoader), {})
        except RecursionError:  # where other readers of YAML end the process
            raise InputError("a configuration must hold sections a few deep in each other, got hundreds.") from None
        require(size <= MOST, "a configuration", f"stand for at most {MOST} values, however it repeats them", size)


def _size(node: Any, known: dict[int, float]) -> float:
    """How many values a node stands for, infinitely many where it holds itself; names in it have to stand once."""
    if id(node) not in known:
        known[id(node)] = math.inf
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            _require_once([name for name, _ in inner if isinstance(name, yaml.ScalarNode)])
            inner = [one for entry in inner for one in entry]
        known[id(node)] = 1 + sum(_size(one, known) for one in inner)
    return known[id(node)]


def _require_once(names: list[Any]) -> None:
    lines: dict[str, int] = {}
    for name in names:
        line = name.start_mark.line + 1
        if name.value in lines and name.value != MERGED:
            where = f"lines {lines[name.value]} and {line}"
            raise InputError(f"{name.value!r} must stand once in its section, got it in {where}.")
        lines[name.value] = line
