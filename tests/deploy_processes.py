"""A deployment of real processes for tests: prepared, started and ended here, whatever happens in between."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
import yaml
from deploy_builders import SITES, Faulty, driver, make_tables, sites

from gfl_lightning.deploy.boxes import SECOND
from gfl_lightning.deploy.configuration import read_deployment
from gfl_lightning.deploy.demo import free_port
from gfl_lightning.deploy.folders import ServerFolder
from gfl_lightning.deploy.news import NewsFile
from gfl_lightning.deploy.nvflare.kits import write_kits
from gfl_lightning.deploy.outcome import read_outcome
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.progress import Store
from gfl_lightning.deploy.transport import LocalTransport, Transport

Process = subprocess.Popen[bytes]
MISBEHAVING = Path(__file__).parent / "deploy" / "misbehaving"
PATIENCE = 600.0  # seconds without any news of a deployment
SERVERS = ("server", SECOND)


def faults(*what: tuple[str, str, int | None]) -> dict[str, str]:
    """The environment of a site to which something happens: what, in which phase, in which round."""
    listed = [{"what": one, "phase": phase} | ({} if t is None else {"round": t}) for one, phase, t in what]
    path = os.pathsep.join(filter(None, (str(MISBEHAVING), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "GFL_FAULTS": json.dumps(listed)}


@dataclass
class Deployed:
    """Server and sites as processes.

    Args:
        folder: where everything is.
        hosts: network namespaces that stand for the hosts of some of them.
    """

    folder: Path
    hosts: Mapping[str, str] = field(default_factory=dict)
    running: dict[str, Process] = field(default_factory=dict)

    @property
    def kits(self) -> Path:
        return self.folder / "kits"

    @property
    def server_folder(self) -> ServerFolder:
        return ServerFolder(self.kits / "server")

    @property
    def servers(self) -> tuple[str, ...]:
        """The server, and the second where there are two."""
        return tuple(name for name in SERVERS if (self.kits / name).is_dir())

    def start(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a server or a site as its operator would."""
        site = name not in SERVERS
        kit = self.site_folder(name) if site else self.kits / name
        command = [sys.executable, "-m", "gfl_lightning", "deploy", "site" if site else name, str(kit)]
        command += ["--samples", str(self.folder / f"{name}.csv")] if site else []
        command = ["ip", "netns", "exec", self.hosts[name], *command] if name in self.hosts else command
        if name in self.running:
            self.running[name].wait(PATIENCE)
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

    def tell(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a family."""
        for process in self.family(name):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def site_folder(self, name: str) -> Path:
        """The kit of a site."""
        return self.kits / "sites" / name

    def happened(self, name: str, number: int) -> bool:
        """Whether a fault of a site has happened."""
        return (self.site_folder(name) / f"fault-{number}").exists()

    def paused(self, name: str, number: int) -> bool:
        """Whether a site stands still in a pause, which is noted a moment before it begins."""
        stopped = False
        for process in self.family(name) if self.happened(name, number) else ():
            with suppress(psutil.NoSuchProcess):
                stopped |= process.status() == psutil.STATUS_STOPPED
        return stopped

    def rounds(self) -> list[dict[str, Any]]:
        """The rounds, each as it was made the last time."""
        return list({one["round"]: one for one in NewsFile(self.server_folder.run).read()}.values())

    def rounds_made(self) -> int:
        """How many rounds were made, again or not."""
        return len(NewsFile(self.server_folder.run).read())

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Wait for something to happen, as long as there is news: however slow a machine is, it is not too late."""
        ends, last = 0.0, list[int]()
        while not until():
            news = [self.rounds_made(), *(file.stat().st_size for file in sorted(self.folder.glob("*.txt")))]
            ends, last = (ends, last) if news == last else (time.monotonic() + PATIENCE, news)
            assert time.monotonic() < ends, f"{what} did not happen:\n{self.console('server')[-3000:]}"
            time.sleep(0.05)

    def wait_for_the_end(self) -> dict[str, Any]:
        """Wait until the server has ended; the record of what was reached."""
        self.wait(lambda: self.running["server"].poll() is not None, "the end")
        record = read_outcome(self.server_folder)
        assert record is not None, self.console("server")[-3000:]
        assert self.running["server"].returncode == 0, self.console("server")[-3000:]
        self.wait(lambda: all(one.poll() is not None for one in self.running.values()), "the end of the sites")
        return record

    def last_weights(self) -> dict[str, torch.Tensor]:
        """W̄ after the last round, from the server's checkpoint."""
        kept = Store(self.server_folder.run / "progress.gfl").read()
        assert kept is not None
        return dict(kept.sums["weights"])

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
            self.running[name].wait(PATIENCE)
        for process in psutil.process_iter(["cmdline"]):  # what has lost its parent
            if any(word.startswith(f"{self.folder}/") for word in process.info["cmdline"] or ()):
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def merely_absent(made: Deployed, plan: Plan) -> dict[str, torch.Tensor]:
    """W̄ of a run in one process in which sites do not answer where they were absent, and that is all.

    The server's record says whose models a round lacks, and how old the uploads were that it used. Sites draw noise
    from the keys of the sites that there were.
    """
    news = {one["round"]: one for one in made.rounds()}
    alone = made.folder / "alone"
    alone.mkdir()
    for file in made.folder.glob("*.csv"):
        shutil.copy(file, alone)
    for name in SITES:
        (alone / name).mkdir()
        for key in (made.site_folder(name) / "run").glob("noise-*.key"):
            shutil.copy(key, alone / name)
    transport: Transport = LocalTransport({name: one.answer for name, one in sites(alone, plan).items()})

    for site in SITES:

        def absent(phase: str, t: int, site: str = site) -> bool:
            told = news.get(t + 1)
            if told is None or phase not in ("share", "train"):
                return False
            return told["ages"][site] > 0 if phase == "share" else site in told["untrained"]

        transport = Faulty(transport, absent, site=site)
    oracle = driver(alone, plan, transport=transport)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the sites' processes; noise depends on every bit
    try:
        oracle.run()
    finally:
        torch.set_num_threads(threads)
    return oracle.weights


def prepare(folder: Path, rounds: int, host: str = "localhost", **options: Any) -> Plan:
    """Tables, configuration and kits of the small network."""
    make_tables(folder, rows=options.pop("rows", 12))
    missing = options.pop("missing", "indicator")
    model = {"encoder": {"class_path": "MLP", "init_args": {"hidden": [6]}}, "local": {"lr": 0.1, "steps": 3}}
    config = {
        "trainer": {"max_steps": rounds, "callbacks": options.pop("callbacks", [])},
        "model": {"class_path": "GFL", "init_args": model | options.pop("model", {})},
        "data": {
            "class_path": "ClientTables",
            "init_args": {
                "edges": str(folder / "edges.csv"),
                "task": "sc",
                "missing": missing,
            },
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
def deployed(
    folder: Path,
    environments: Mapping[str, Mapping[str, str]] | None = None,
    hosts: Mapping[str, str] | None = None,
) -> Iterator[Deployed]:
    """The prepared deployment, running; ended at the end."""
    made = Deployed(folder, hosts or {})
    try:
        for name in (*made.servers, *SITES):
            made.start(name, (environments or {}).get(name))
        yield made
    finally:
        made.end()
