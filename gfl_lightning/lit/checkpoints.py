"""Checkpoints as the command line takes them: data, checked before anything is made of them.

A file names nothing that would be imported: models, data sets and parts come of it only where their classes are loaded,
their options only as plain values of the right types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from gfl_lightning.checks import InputError, require
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.lit.checkpoint_layout import require_layout
from gfl_lightning.lit.data import ClientGraphData
from gfl_lightning.lit.options import MODULE, rebuilt
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.parts import CLASS, OPTIONS, typed
from gfl_lightning.sealed_files import read_sealed


def read_checkpoint(path: str | Path | None, command: str) -> dict[str, Any] | None:
    """The checkpoint that a command names; only `fit` may go without."""
    if path is None:
        require(command == "fit", "ckpt_path", f"name the checkpoint to {command}", path)
        return None
    checkpoint: dict[str, Any] = read_sealed(str(path), "ckpt_path")
    require_layout(checkpoint, "ckpt_path")
    whole = command != "fit" or "optimizer_states" in checkpoint
    require(whole, "ckpt_path", "be a whole checkpoint to resume from, such as last.ckpt", str(path))
    return checkpoint


def model_of(checkpoint: dict[str, Any], linked: Sequence[str]) -> dict[str, Any]:
    """The model of a checkpoint as a configuration names it, without what is linked to the data."""
    options = dict(checkpoint["hyper_parameters"])
    path = options.pop(MODULE, None)
    rebuilt(_loaded(path, RoundModule, "a model"), options)
    return {CLASS: path, OPTIONS: {name: value for name, value in options.items() if name not in linked}}


def data_of(checkpoint: dict[str, Any]) -> dict[str, Any] | None:
    """The data set that a model was trained on as a configuration names it, without files; none if it has no words."""
    saved = checkpoint.get(ClientGraphData.__qualname__)
    described = saved.get("options") if isinstance(saved, dict) else None
    if described is None:
        return None
    require(isinstance(described, dict), "ckpt_path", "hold the options of its data by name", described)
    kind, options = _loaded(described.get(CLASS), DataSet, "a data set"), described.get(OPTIONS)
    require(isinstance(options, dict), "ckpt_path", "hold the options of its data by name", options)
    kinds = {field.name: get_type_hints(kind)[field.name] for field in fields(kind) if field.init}
    allowed = set(kinds) - set(kind.files)
    require(set(options) <= allowed, "ckpt_path", f"hold options of {kind.__name__}", ", ".join(options))
    for name, value in options.items():
        typed(value, kinds[name], name)
    return {CLASS: described[CLASS], OPTIONS: options}


def _loaded(path: Any, base: type, what: str) -> Any:
    """The class at a path, if it is loaded."""
    kinds: list[type] = [base]
    for kind in kinds:
        kinds += kind.__subclasses__()
    found = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in kinds}.get(str(path))
    if found is None:
        raise InputError(
            f"ckpt_path must hold {what} of this program or of a module that is loaded, got {path!r}; --config with "
            "the config.yaml of its run names it."
        )
    return found
