"""The hospitals of the example at three sites: everything that a deployment does, on one machine, over TLS."""

from __future__ import annotations

import importlib.util
import os
import random
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import yaml  # type: ignore[import-untyped]

import gfl_lightning
from gfl_lightning.checks import require, require_count
from gfl_lightning.deploy.configuration import read_deployment
from gfl_lightning.deploy.folders import ServerFolder
from gfl_lightning.deploy.nvflare import processes
from gfl_lightning.deploy.nvflare.kits import write_kits
from gfl_lightning.deploy.watching import supervised

EXAMPLE = Path("examples") / "hospitals"
SITES = ("north", "east", "south")


def demo(out: Path, rounds: int) -> int:
    """Prepare, run the server and three sites as processes of their own, show the summary and where everything is."""
    require_count("rounds", rounds)
    require(not out.exists() or not any(out.iterdir()), "out", "be a new or empty folder", str(out))
    out.mkdir(parents=True, exist_ok=True)
    print(f"{out}: tables of {len(SITES)} sites, their certificates, and processes that start now")
    write_example(out, rounds)
    write_kits(read_deployment(out / "config.yaml", out / "sites.yaml"), out / "deployment")
    folders = {site: out / "deployment" / "sites" / site for site in SITES}
    sites = [_site(folder, out / f"{site}.csv") for site, folder in folders.items()]
    try:
        code = supervised(ServerFolder(out / "deployment" / "server"), patience=300)
        for process in sites:
            processes.wait_for(process, 30)
    finally:
        for process in sites:
            processes.end(process)
    print(f"{'server':>14}  {out / 'deployment' / 'server'}: run/ has rounds and summary, console.txt what was printed")
    for site, folder in folders.items():
        print(f"{site:>14}  {folder}: run/model.gfl is what it received; its table is {out / f'{site}.csv'}")
    print(f"{'predict':>14}  python -m gfl_lightning deploy predict {folders['north']} --samples {out / 'north.csv'}")
    return code


def write_example(out: Path, rounds: int) -> None:
    """Tables of the hospitals, one for each site, with a configuration and a file of sites."""
    network = _example().make(0)
    hospitals = sorted(network.patients["hospital"].unique())
    owned = {site: hospitals[i :: len(SITES)] for i, site in enumerate(SITES)}
    for site, names in owned.items():
        network.patients[network.patients["hospital"].isin(names)].to_csv(out / f"{site}.csv", index=False)
    network.referrals.to_csv(out / "referrals.csv", index=False)
    config = yaml.safe_load((_root() / EXAMPLE / "graph.yaml").read_text(encoding="utf-8"))
    config["trainer"]["max_steps"] = rounds
    config["data"]["init_args"]["edges"] = str(out / "referrals.csv")
    (out / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    places = {"server": {"host": "localhost", "port": free_port()}, "sites": owned, "timeout": 60}
    (out / "sites.yaml").write_text(yaml.safe_dump(places, sort_keys=False), encoding="utf-8")


def free_port() -> int:
    """A port of this machine that nobody listens on, below those that systems give to connections going out."""
    while True:
        port = random.SystemRandom().randrange(10_000, 30_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port


def _site(folder: Path, samples: Path) -> subprocess.Popen[bytes]:
    """A site as its operator would start it."""
    command = [sys.executable, "-m", "gfl_lightning", "deploy", "site", str(folder), "--samples", str(samples)]
    with (folder / "operator.txt").open("wb") as console:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT,
            env=dict(os.environ), start_new_session=True,
        )  # fmt: skip


def _root() -> Path:
    return Path(gfl_lightning.__file__).parent.parent


def _example() -> ModuleType:
    """The program that draws the hospitals."""
    file = _root() / EXAMPLE / "make_network.py"
    require(file.is_file(), "demo", "be run from a clone of the repository, where its example is", str(file.parent))
    spec = importlib.util.spec_from_file_location("make_network", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
