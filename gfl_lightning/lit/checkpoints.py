"""Checkpoints as the command line takes them: read without running code, checked before anything is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gfl_lightning.checks import InputError, require
from gfl_lightning.lit.data import ClientGraphData
from gfl_lightning.lit.options import MODULE, rebuilt, require_own
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.parts import CLASS, OPTIONS


def read_checkpoint(path: str | Path | None, command: str) -> dict[str, Any] | None:
    """The checkpoint that a command names; only `fit` may go without."""
    if path is None:
        require(command == "fit", "ckpt_path", f"name the checkpoint to {command}", path)
        return None
    require(Path(str(path)).is_file(), "ckpt_path", "name a checkpoint file", path)
    try:
        checkpoint: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as unreadable:
        raise InputError(
            f"ckpt_path must be a checkpoint of this program, got {str(path)!r} ({type(unreadable).__name__})."
        ) from unreadable
    require("rounds" in checkpoint, "ckpt_path", "be a checkpoint of this program", str(path))
    require_own(checkpoint)
    whole = command != "fit" or "optimizer_states" in checkpoint
    require(whole, "ckpt_path", "be a whole checkpoint to resume from, such as last.ckpt", str(path))
    return checkpoint


def names_a_model(args: Sequence[str]) -> bool:
    """Whether a command line says itself what the model is."""
    return any(one.split("=")[0].split(".")[0] in ("-c", "--config", "--model") for one in args)


def model_of(checkpoint: dict[str, Any], linked: Sequence[str]) -> dict[str, Any]:
    """The model of a checkpoint as a configuration names it, without what is linked to the data.

    Only classes that are loaded can come of it: a file names nothing that would be imported.
    """
    options = dict(checkpoint["hyper_parameters"])
    path = options.pop(MODULE)
    rebuilt(_loaded(path), options)
    return {CLASS: path, OPTIONS: {name: value for name, value in options.items() if name not in linked}}


def data_class(checkpoint: dict[str, Any]) -> str | None:
    """The class of the data set that the model was trained on."""
    return checkpoint.get(ClientGraphData.__qualname__, {}).get("class")


def _loaded(path: str) -> type[RoundModule]:
    """The class of a model that is loaded."""
    kinds = [RoundModule]
    for kind in kinds:
        kinds += kind.__subclasses__()
    found = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in kinds}.get(path)
    if found is None:
        raise InputError(
            f"ckpt_path must hold a model of this program or of a module that is loaded, got {path!r}; --config with "
            "the config.yaml of its run names it."
        )
    return found
