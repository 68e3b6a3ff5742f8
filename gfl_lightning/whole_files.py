"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(file: Path, previous: Path | None = None) -> Iterator[Path]:
    """A path to write to, in the same folder, that becomes ``file`` at the end; on an error nothing is left.

    The content is on the disk before the name points to it, so that a file is whole also where the machine fails.

    Args:
        file: the file.
        previous: name that the file which is there already keeps, if any; at no moment is there no ``file``.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = _scratch(file)
    try:
        yield scratch
        _flush(scratch)
        if previous is not None and file.exists():
            _keep(file, previous)
        os.replace(scratch, file)
        _flush(file.parent)
    finally:
        scratch.unlink(missing_ok=True)


def _scratch(file: Path) -> Path:
    """A name beside a file that no other process uses."""
    return file.with_name(f".{os.getpid()}.{file.name}")


def _keep(file: Path, previous: Path) -> None:
    """Give a file a second name; where the file system knows no links, its only one."""
    scratch = _scratch(previous)
    try:
        os.link(file, scratch)
        os.replace(scratch, previous)
    except OSError:
        os.replace(file, previous)
    finally:
        scratch.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Have the disk hold a file's content, or a folder's names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
