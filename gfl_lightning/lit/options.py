"""The options of a module as plain nested data: what its checkpoint keeps, and what it is built from again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from gfl_lightning.checks import require
from gfl_lightning.engine.best import Best
from gfl_lightning.parts import CLASS, build, describe

NOT_KEPT = ("self", "__class__", "lr_scheduler")
MODULE = "_class_path"  # where Lightning's command line looks for it


def described(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a module's constructor, its ``locals()``, as plain data, with the module's class.

    >>> from gfl_lightning.models.aggregators.sgc import SGC
    >>> described({"aggregator": SGC(k=3), "seed": 1, "lr_scheduler": print})["aggregator"]["init_args"]
    {'k': 3}
    """
    kind = type(arguments["self"]) if "self" in arguments else None
    module = {} if kind is None else {MODULE: f"{kind.__module__}.{kind.__qualname__}"}
    return module | {name: describe(value) for name, value in arguments.items() if name not in NOT_KEPT}


def rebuilt(module: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that were described, each part built as what the module's constructor wants it to be."""
    kinds = get_type_hints(module.__init__)  # type: ignore[misc]
    parts = {name: value for name, value in options.items() if isinstance(value, dict) and CLASS in value}
    return {name: build(value, kinds[name]) for name, value in parts.items() if name in kinds}


def require_own(checkpoint: Mapping[str, Any], argument: str = "ckpt_path") -> None:
    """Refuse a checkpoint of a program whose options did not nest yet."""
    kept = set(checkpoint["rounds"]["best"]) if "rounds" in checkpoint else {field.name for field in fields(Best)}
    require(
        kept == {field.name for field in fields(Best)},
        argument,
        "be a checkpoint of this version of the program, whose options nest (model.local.lr, model.aggregator.alpha)",
        f"an older one with the options {', '.join(checkpoint.get('hyper_parameters', {}))}",
    )
