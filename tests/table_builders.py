"""Tables for tests, written as a user would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gfl_lightning.graphs.tables.network import Network, read_network
from gfl_lightning.graphs.tables.settings import Settings

SAMPLES = """\
client,id,age,ward,label,split
a,1,30,x,yes,train
a,2,40,y,no,train
a,3,50,x,yes,test
b,1,35,y,no,train
b,2,45,x,yes,val
"""
EDGES = "source,target,weight\na,b,1.5\n"


def written(folder: Path, samples: str = SAMPLES, edges: str = EDGES) -> tuple[str, str]:
    """Two CSV files with some text."""
    files = folder / "samples.csv", folder / "edges.csv"
    for file, text in zip(files, (samples, edges), strict=True):
        file.write_bytes(text.encode())
    return str(files[0]), str(files[1])


def network(folder: Path, samples: str = SAMPLES, edges: str = EDGES, **settings: Any) -> Network:
    """The network of two CSV files with some text."""
    return read_network(*written(folder, samples, edges), Settings(**{"task": "sc", **settings}))


def clinics(N: int = 12, n: int = 12, task: str = "sc", seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Patients of N clinics on a ring with chords, and its edges; in snc a clinic has one label."""
    draw = np.random.default_rng(seed)
    n = 1 if task == "dnc" else n
    client = np.repeat(np.arange(N), n)
    side = (np.arange(N) < N // 2).astype(int)
    ill = side[client] if task != "sc" else (draw.random(N * n) < 0.3 + 0.4 * side[client]).astype(int)
    samples = pd.DataFrame(
        {
            "client": [f"clinic {k}" for k in client],
            "id": [f"p{i}" for i in range(N * n)],
            "age": draw.normal(50, 10, N * n) + 8 * ill,
            "marker": np.where(draw.random(N * n) < 0.1, np.nan, draw.normal(1, 0.3, N * n) + 0.3 * ill),
            "ward": draw.choice(["A", "B", "C"], N * n),
            "label": np.where(ill, "ill", "well"),
        }
    )
    ends = [(k, (k + step) % N) for k in range(N) for step in (1, 2)]
    return samples, pd.DataFrame([(f"clinic {a}", f"clinic {b}") for a, b in ends], columns=["a", "b"])
