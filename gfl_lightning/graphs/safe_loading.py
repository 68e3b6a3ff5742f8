"""Files that ``torch.save`` wrote, read without running any code that they may hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gfl_lightning.checks import InputError, require


def load_safely(path: str | Path, argument: str, what: str, classes: Sequence[type] = ()) -> Any:
    """Tensors and plain containers, and objects of the classes ``classes``; anything else is refused."""
    require(Path(path).is_file(), argument, "name a file", str(path))
    already = torch.serialization.get_safe_globals()  # what others allowed must stay when the context ends
    try:
        with torch.serialization.safe_globals([one for one in classes if one not in already]):
            return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as unreadable:
        raise InputError(f"{argument} must be {what}, got {str(path)!r} ({type(unreadable).__name__}).") from unreadable
