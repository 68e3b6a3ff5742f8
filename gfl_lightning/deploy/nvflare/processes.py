"""Processes of NVFlare that this program starts, and ends with everything they have started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

CONSOLE = "console.txt"


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
