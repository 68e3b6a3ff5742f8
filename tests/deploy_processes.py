"""A deployment of real processes for tests: prepared, started and ended here, whatever happens in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from deploy_builders import SITES, make_tables

from gfl_lightning.deploy.configuration import read_deployment
from gfl_lightning.deploy.demo import free_port
from gfl_lightning.deploy.folders import ServerFolder
from gfl_lightning.deploy.news import NewsFile
from gfl_lightning.deploy.nvflare.kits import write_kits
from gfl_lightning.deploy.outcome import read_outcome
from gfl_lightning.deploy.plan import Plan

Process = subprocess.Popen[bytes]


@dataclass
class Deployed:
    """Server and sites as processes.

    Args:
        folder: where everything is.
    """

    folder: Path
    running: dict[str, Process] = field(default_factory=dict)

    @property
    def kits(self) -> Path:
        return self.folder / "kits"

    @property
    def server_folder(self) -> ServerFolder:
        return ServerFolder(self.kits / "server")

    def start(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        """Start the server or a site as its operator would."""
        server = name == "server"
        kit = self.kits / "server" if server else self.kits / "sites" / name
        command = [sys.executable, "-m", "gfl_lightning", "deploy", "server" if server else "site", str(kit)]
        command += [] if server else ["--samples", str(self.folder / f"{name}.csv")]
        if name in self.running:
            self.running[name].wait(10)
        with (self.folder / f"{name}.txt").open("ab") as console:
            self.running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
                start_new_session=True,
            )

    def family(self, name: str) -> list[psutil.Process]:
        """A process and everything that it started."""
        parent = psutil.Process(self.running[name].pid)
        return [parent, *parent.children(recursive=True)]

    def tell(self, name: str, number: signal.Signals, only: str = "") -> None:
        """Send a signal to a family, or to those of its processes whose command line holds a text."""
        for process in self.family(name):
            try:
                if only in " ".join(process.cmdline()):
                    process.send_signal(number)
            except psutil.NoSuchProcess:
                continue

    def rounds(self) -> list[dict[str, Any]]:
        """The rounds so far."""
        return NewsFile(self.server_folder.run).read()

    def wait(self, until: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for something to happen."""
        ends = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < ends, (
                f"{what} did not happen within {seconds} s:\n{self.console('server')[-2000:]}"
            )
            time.sleep(0.05)

    def wait_for_round(self, number: int, seconds: float = 120) -> None:
        """Wait until so many rounds are made."""
        self.wait(lambda: bool(self.rounds()) and self.rounds()[-1]["round"] >= number, seconds, f"round {number}")

    def wait_for_the_end(self, seconds: float = 180) -> dict[str, Any]:
        """Wait until the server has ended; the record of what was reached."""
        self.wait(lambda: self.running["server"].poll() is not None, seconds, "the end")
        record = read_outcome(self.server_folder)
        assert record is not None, self.console("server")[-2000:]
        self.wait(lambda: all(one.poll() is not None for one in self.running.values()), 60, "the end of the sites")
        return record

    def console(self, name: str) -> str:
        """What the operator of a participant has seen."""
        return (self.folder / f"{name}.txt").read_text(errors="replace")

    def end(self) -> None:
        """End everything that was started."""
        for name in self.running:
            try:
                family = self.family(name)
            except psutil.NoSuchProcess:
                continue
            for process in family:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            self.running[name].wait(10)


def prepare(folder: Path, rounds: int, host: str = "localhost", **options: Any) -> Plan:
    """Tables, configuration and kits of the small network."""
    make_tables(folder, rows=options.pop("rows", 12))
    model = {"encoder": {"class_path": "MLP", "init_args": {"hidden": [6]}}, "local": {"lr": 0.1, "steps": 3}}
    config = {
        "trainer": {"max_steps": rounds, "callbacks": options.pop("callbacks", [])},
        "model": {"class_path": "GFL", "init_args": model | options.pop("model", {})},
        "data": {
            "class_path": "ClientTables",
            "init_args": {"edges": str(folder / "edges.csv"), "task": "sc", "missing": "indicator"},
        },
    }
    server = {"host": host, "port": free_port()}
    places = {"server": server, "sites": {name: list(clients) for name, clients in SITES.items()}, **options}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "sites.yaml").write_text(yaml.safe_dump(places))
    deployment = read_deployment(folder / "config.yaml", folder / "sites.yaml")
    write_kits(deployment, folder / "kits")
    return deployment.plan


@contextmanager
def deployed(folder: Path, environments: Mapping[str, Mapping[str, str]] | None = None) -> Iterator[Deployed]:
    """The prepared deployment, running; ended at the end."""
    made = Deployed(folder)
    try:
        for name in ("server", *SITES):
            made.start(name, (environments or {}).get(name))
        yield made
    finally:
        made.end()
