"""How checkpoints come to the disk and back: whole, sealed, and as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytorch_lightning.plugins import CheckpointIO
from pytorch_lightning.plugins.io.wrapper import _WrappingCheckpointIO

from gfl_lightning.checks import require
from gfl_lightning.lit.checkpoint_layout import require_layout
from gfl_lightning.sealed_files import is_sealed, previous_of, read_sealed, write_sealed


class SealedCheckpointIO(CheckpointIO):
    """Writes a checkpoint beside its target, seals it and renames it; reads only what is sealed, and runs no code.

    The file that a checkpoint replaces stays beside it (`last.previous.ckpt`). `FederatedTrainer` uses it by itself,
    also within plugins that wrap another (`AsyncCheckpointIO`).

    >>> type(SealedCheckpointIO()).__mro__[1].__name__
    'CheckpointIO'
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write the checkpoint, or leave everything as it was."""
        require(storage_options is None, "storage_options", "be left out, as checkpoints are local files", path)
        require("://" not in str(path), "dirpath", "be a folder of this machine", str(path))
        write_sealed(checkpoint, Path(path))

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The checkpoint, its seal and layout checked."""
        checkpoint: dict[str, Any] = read_sealed(path, "ckpt_path")
        require_layout(checkpoint, "ckpt_path")
        return checkpoint

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove the file and the one that it replaced, if they are sealed: the name may come of a checkpoint."""
        for file in (Path(path), previous_of(Path(path))):
            if is_sealed(file):
                file.unlink(missing_ok=True)


def sealing(plugins: Any) -> list[Any]:
    """The plugins of a trainer, with checkpoints sealed unless one of them writes them in a way of its own."""
    listed = list(plugins) if isinstance(plugins, (list, tuple)) else [] if plugins is None else [plugins]
    for plugin in listed:
        if isinstance(plugin, _WrappingCheckpointIO):
            plugin.checkpoint_io = SealedCheckpointIO()  # the first one that it is given is the one that it keeps
    return listed if any(isinstance(one, CheckpointIO) for one in listed) else [*listed, SealedCheckpointIO()]
