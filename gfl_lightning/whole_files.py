"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """A path to write to, in the same folder, that becomes ``file`` at the end; on an error nothing is left."""
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.with_name(f".{os.getpid()}.{file.name}")
    try:
        yield scratch
        os.replace(scratch, file)
    finally:
        scratch.unlink(missing_ok=True)
