"""What a round costs between real processes: 8 sites and a server on this machine, NVFlare with TLS."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import yaml

from gfl_lightning.deploy.configuration import read_deployment
from gfl_lightning.deploy.demo import free_port
from gfl_lightning.deploy.folders import ServerFolder
from gfl_lightning.deploy.news import NewsFile
from gfl_lightning.deploy.nvflare import processes
from gfl_lightning.deploy.nvflare.kits import write_kits
from gfl_lightning.deploy.watching import supervised

SITES, WORDS, CLASSES, ROUNDS = 8, 1433, 7, 14


def write_network(folder: Path, clients: int) -> dict[str, list[str]]:
    """Tables of 8 sites with so many clients each, one paper of Cora's size per client; who is where."""
    draw = np.random.default_rng(0)
    owned = {f"site{s}": [f"c{s}{k:03d}" for k in range(clients)] for s in range(SITES)}
    names = sorted(name for one in owned.values() for name in one)
    for number, (site, own) in enumerate(owned.items()):
        x = (draw.random((clients, WORDS)) < 18 / WORDS).astype(int)
        x[:, number] = 1
        frame = pd.DataFrame(x, columns=[f"w{i}" for i in range(WORDS)])
        frame.insert(0, "client", own)
        frame["label"] = [f"class {(names.index(name)) % CLASSES}" for name in own]
        frame["split"] = "train" if clients == 1 else ["val" if k % 10 == 9 else "train" for k in range(clients)]
        if clients == 1 and number == SITES - 1:
            frame["split"] = "val"
        frame.to_csv(folder / f"{site}.csv", index=False)
    ends = draw.integers(len(names), size=(2, 2 * len(names)))
    ring = [(names[k], names[(k + 1) % len(names)]) for k in range(len(names))]
    edges = ring + [(names[a], names[b]) for a, b in ends.T if a != b]
    pd.DataFrame(edges, columns=["one", "other"]).to_csv(folder / "edges.csv", index=False)
    return owned


def seconds_per_round(clients: int, places: dict[str, Any] | None = None, **model: Any) -> float:
    """Median seconds of a round, of those after the first few."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sites = write_network(folder, clients)
        tables = {"edges": str(folder / "edges.csv"), "task": "dnc", "scaling": "none"}
        config = {
            "trainer": {"max_steps": ROUNDS},
            "model": {"class_path": "GFL", "init_args": {"local": {"lr": 0.02, "steps": 10}, **model}},
            "data": {"class_path": "ClientTables", "init_args": tables},
        }
        where = {"server": {"host": "localhost", "port": free_port()}, "sites": sites, "timeout": 120}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        (folder / "sites.yaml").write_text(yaml.safe_dump(where | (places or {})))
        write_kits(read_deployment(folder / "config.yaml", folder / "sites.yaml"), folder / "kits")
        running = [_start(folder, site) for site in sites]
        try:
            server = ServerFolder(folder / "kits" / "server")
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                supervised(server, patience=600)
            time.sleep(1)
        finally:
            for process in running:
                processes.end(process)
        return median(float(one["seconds"]) for one in NewsFile(server.run).read()[3:])


def _start(folder: Path, site: str) -> subprocess.Popen[bytes]:
    kit, samples = folder / "kits" / "sites" / site, folder / f"{site}.csv"
    command = [sys.executable, "-m", "gfl_lightning", "deploy", "site", str(kit), "--samples", str(samples)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ) | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def measure() -> dict[str, float]:
    """Seconds a round under both protocols, with a hundred clients at each site, and masked over plain."""
    masks = {"masking": {}}
    jacobian, gram = seconds_per_round(1), seconds_per_round(1, protocol="gram")
    figures = {
        "deployed_jacobian": jacobian,
        "deployed_gram": gram,
        "deployed_many": seconds_per_round(100, protocol="gram"),
        "deployed_masked_jacobian": seconds_per_round(1, masks) / jacobian,
        "deployed_masked_gram": seconds_per_round(1, masks, protocol="gram") / gram,
    }
    print(f"after rounds between processes the machine's load was {os.getloadavg()[0]:.1f}")
    return figures
