"""Nested plain containers of tensors as one file, without pickle: whole or not at all, readable by its owner alone."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.whole_files import whole_file

PLAIN = (str, int, float, bool, type(None))


def write_state(file: Path, state: Any) -> None:
    """Write dictionaries, lists, tensors, numbers and text, with mode 600.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_state(Path(folder) / "state", {"round": 3, "W2": {0: torch.ones(2)}})
    ...     read_state(Path(folder) / "state")
    {'round': 3, 'W2': {0: tensor([1., 1.])}}
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_flat(state, tensors)).encode()
    parts = (len(text).to_bytes(8, "big"), text, safetensors.torch.save(tensors))
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(part)
    with whole_file(file) as scratch:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.writelines((checksum.digest(), *parts))


def read_state(file: Path) -> Any:
    """What :func:`write_state` wrote; anything else is refused."""
    blob = memoryview(file.read_bytes())
    body = blob[32:]
    if hashlib.sha256(body).digest() != blob[:32]:
        raise InputError(f"{file} must be a whole state file of this program, got one with another checksum.")
    length = int.from_bytes(body[:8], "big")
    try:
        return _nested(json.loads(bytes(body[8 : 8 + length])), safetensors.torch.load(bytes(body[8 + length :])))
    except Exception as broken:  # whoever makes a file can make its checksum
        reason = type(broken).__name__
        raise InputError(f"{file} must hold plain containers of tensors, got others ({reason}).") from broken


def _flat(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"items": [[_plain(key), _flat(one, tensors)] for key, one in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_flat(one, tensors) for one in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    if not isinstance(value, PLAIN):
        raise TypeError(f"a state must hold plain values and tensors, got {type(value).__name__}.")
    return value


def _nested(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _nested(one, tensors) for key, one in value["items"]}
    return [_nested(one, tensors) for one in value] if isinstance(value, list) else value
