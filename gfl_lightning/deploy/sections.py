"""Sections of YAML files: read as what they must be, or refused with the name of the section."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gfl_lightning.checks import InputError, require
from gfl_lightning.stated_once import load_yaml


def read_yaml(file: Path, argument: str) -> Mapping[str, Any]:
    """The options in a file."""
    require(file.is_file(), argument, "name a file", str(file))
    try:
        return mapping(load_yaml(file.read_text(encoding="utf-8")), argument)
    except (yaml.YAMLError, UnicodeError) as broken:
        raise InputError(f"{argument} must be a YAML file, got {str(file)!r}: {broken}.") from broken


def section(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The options below a name."""
    return mapping(given.get(name), name)


def class_of(section: Mapping[str, Any]) -> str:
    """The last part of a section's class path."""
    return str(section.get("class_path")).rpartition(".")[2]


def mapping(value: Any, argument: str) -> Mapping[str, Any]:
    """Options by name."""
    require(isinstance(value, dict), argument, "be a section of options", value)
    return dict(value)


def listed(value: Any, argument: str) -> list[Any]:
    """A list of plain values."""
    plain = isinstance(value, list) and not any(one is None or isinstance(one, (list, dict)) for one in value)
    require(plain, argument, "be a list of values", value)
    return list(value)


def require_only(given: Mapping[str, Any], known: tuple[str, ...], argument: str) -> None:
    """Refuse options that are not known."""
    others = sorted(set(map(str, given)) - set(known))
    require(not others, argument, f"have options among {', '.join(sorted(known))} in a deployment", others)
