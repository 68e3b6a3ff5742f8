"""Processes of NVFlare that this program starts, and ends with everything they have started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from gfl_lightning.checks import InputError

CONSOLE, LOCK, ENGINE = "console.txt", "operator.lock", "nvflare.private.fed"


@contextlib.contextmanager
def only_operator(folder: Path) -> Iterator[None]:
    """Refuse a second operator of a kit, and end what one that was killed has left running."""
    handle = os.open(folder / LOCK, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise InputError(f"DIR must not be in use by another process, got {str(folder)!r}.") from taken
        _end_orphans(folder)
        yield
    finally:
        os.close(handle)


def _end_orphans(folder: Path) -> None:
    """End processes of NVFlare that run from a folder which no operator holds."""
    here, found = str(folder.resolve()), []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(ENGINE in word for word in words) and any(word == here or word.startswith(f"{here}/") for word in words):
            found.append(process)
    for process in found:
        _tell(process, gently=False)
    psutil.wait_procs(found, timeout=10)


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Run a start-up kit in a session of its own; what it prints goes to a file in its folder."""
    environment = dict(os.environ)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    environment.setdefault("OMP_NUM_THREADS", "1")
    with (folder / CONSOLE).open("ab") as console:
        return subprocess.Popen(
            ["bash", str(folder / "startup" / "sub_start.sh"), "--once"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes], patience: float = 3.0) -> None:
    """End a process and all its descendants, gently and then for good."""
    try:
        parent = psutil.Process(process.pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        process.poll()
        return
    for one in family:
        _tell(one, gently=True)
    _, alive = psutil.wait_procs(family, timeout=patience)
    for one in alive:
        _tell(one, gently=False)
    psutil.wait_procs(alive, timeout=patience)
    process.poll()


def wait_for(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process has ended by itself within some seconds."""
    ends = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < ends:
        time.sleep(0.1)
    return process.poll() is not None


def _tell(process: psutil.Process, gently: bool) -> None:
    try:
        if gently:
            process.terminate()
        else:
            process.kill()
    except psutil.NoSuchProcess:
        return
