"""Files that appear whole or not at all."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

SCRATCH = re.compile(r"\.(\d{1,9})-([0-9a-f]{8})\.")


@contextmanager
def whole_file(file: Path, previous: Path | None = None) -> Iterator[Path]:
    """A path to write to, in the same folder, that becomes ``file`` at the end; on an error nothing is left.

    The content is on the disk before the name points to it, so that a file is whole also where the machine fails. What
    processes that were killed had begun in the folder is removed by the first file of another process there.

    Args:
        file: the file.
        previous: name that the file which is there already keeps, if any; at no moment is there no ``file``.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    _clear(file.parent.resolve())
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


def try_writing(folder: Path) -> None:
    """Write to a folder, which need not exist, and leave no trace: what fails there fails before any long work."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    scratch = _scratch(folder / "probe")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch.touch()
    finally:
        scratch.unlink(missing_ok=True)
        for one in made:
            with suppress(OSError):
                one.rmdir()


def _scratch(file: Path) -> Path:
    """A name beside a file that no other process uses, here or on a machine that shares the folder."""
    return file.with_name(f".{os.getpid()}-{_here()}.{file.name}")


@cache
def _here() -> str:
    """Where this process's number has a meaning: the machine and, in a container, its numbering of processes."""
    space = Path("/proc/self/ns/pid")
    numbering = os.readlink(space) if space.is_symlink() else ""
    return hashlib.sha256(f"{platform.node()} {numbering}".encode()).hexdigest()[:8]


@cache
def _clear(folder: Path) -> None:
    """Remove the scratch files of processes that are gone; those of other machines can't be told from living ones."""
    with suppress(OSError):  # a favour to the folder, which no file may fail for
        for file in folder.iterdir():
            found = SCRATCH.match(file.name)
            if found is not None and found[2] == _here() and _gone(int(found[1])):
                file.unlink(missing_ok=True)


def _gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


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
