"""Tables of a small network, the same tables cut up by site, and a deployment of them in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gfl_lightning.deploy.driver import Driver
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.progress import Store
from gfl_lightning.deploy.roster import Roster, graph_without_data
from gfl_lightning.deploy.site import OwnClients, Site
from gfl_lightning.deploy.table_plan import TablePlan
from gfl_lightning.deploy.transport import LocalTransport, Transport
from gfl_lightning.federated.federation import Federation
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.graphs.tables.settings import Settings

Replies = tuple[dict[str, bytes], dict[str, str]]
Absent = Callable[[str, int], bool]
SITES = {"north": ("a", "d", "f"), "south": ("b",), "west": ("c", "e")}
PUBLIC: dict[str, Any] = {
    "ranges": {"age": (0.0, 120.0), "lactate": (0.0, 10.0)},
    "categories": {"ward": ("A", "B", "C")},
    "classes": ("ill", "well"),
}
CLIENTS = sorted(name for names in SITES.values() for name in names)


def make_tables(folder: Path, task: str = "sc", rows: int = 12, seed: int = 0) -> None:
    """``samples.csv`` and ``edges.csv`` of all, and ``north.csv``, … with the rows of one site each."""
    draw = np.random.default_rng(seed)
    frames = []
    for number, name in enumerate(CLIENTS):
        n = 1 if task == "dnc" else rows + number
        label = draw.integers(0, 2, n) if task == "sc" else np.full(n, number % 2)
        columns: dict[str, Any] = {"client": name, "age": np.round(draw.normal(50, 12, n) + 9 * label, 1)}
        columns["lactate"] = np.where(draw.random(n) < 0.2, np.nan, np.round(draw.normal(1.5, 0.4, n) - 0.5 * label, 2))
        columns["ward"] = draw.choice(["A", "B", "C"][: 2 + number % 2], n)
        columns["label"] = np.where(label == 1, "ill", "well")
        parts = ["train", "val", "test"]
        columns["split"] = [parts[i % 3] for i in range(n)] if task == "sc" else parts[number // 2 % 3]
        frames.append(pd.DataFrame(columns))
    samples = pd.concat(frames, ignore_index=True)
    samples.to_csv(folder / "samples.csv", index=False)
    for site, names in SITES.items():
        samples[samples["client"].isin(names)].to_csv(folder / f"{site}.csv", index=False)
    ring = [(CLIENTS[i], CLIENTS[(i + 1) % 6], 0.5 + i / 10) for i in range(6)] + [("a", "d", 2.0)]
    pd.DataFrame(ring, columns=["one", "other", "weight"]).to_csv(folder / "edges.csv", index=False)


def settings(task: str = "sc", **options: Any) -> Settings:
    return Settings(task=task, missing="indicator", **options)  # type: ignore[arg-type]


def roster() -> Roster:
    return Roster(SITES)


def site(folder: Path, plan: Plan, name: str) -> Site:
    numbers = {client: roster().number(client) for client in SITES[name]}
    return Site(OwnClients(name, numbers), plan, str(folder / f"{name}.csv"), folder / name)


def sites(folder: Path, plan: Plan) -> dict[str, Site]:
    return {name: site(folder, plan, name) for name in SITES}


def driver(folder: Path, plan: Plan, at: Mapping[str, Site] | None = None, **options: Any) -> Driver:
    answers = {name: one.answer for name, one in (at or sites(folder, plan)).items()}
    graph = graph_without_data(roster(), str(folder / "edges.csv"), EdgeColumns())
    transport = options.pop("transport", LocalTransport(answers))
    return Driver(plan, roster(), graph, transport, Store(folder / "server" / "progress.gfl"), **options)


@dataclass(frozen=True)
class Simulated:
    """The same plan as the engine runs it, on one table of all rows."""

    federation: Federation

    @classmethod
    def of(cls, folder: Path, plan: Plan) -> Simulated:
        stated = {name: value for name, value in vars(plan.tables.settings).items() if name in _OPTIONS}
        stated = {name: list(value) if isinstance(value, tuple) else value for name, value in stated.items()}
        tables = ClientTables(
            str(folder / "samples.csv"), str(folder / "edges.csv"), class_weights=plan.tables.class_weights, **stated
        )
        names = ("encoder", "aggregator", "estimator", "local", "server", "participation", "weighting", "protocol")
        parts = {name: getattr(plan, name) for name in (*names, "seed", "protection")}
        return cls(Federation(tables.graph, **parts))


_OPTIONS = {field.name for field in fields(ClientTables)} - {"label", "split", "id"}


def plan(task: str = "sc", rounds: int = 3, **options: Any) -> Plan:
    tables = options.pop("tables", None) or TablePlan(settings(task), options.pop("class_weights", None))
    return Plan(tables, rounds, **options)


@dataclass(eq=False)
class Faulty(Transport):
    """Local sites, of which one does not answer some phases of some rounds, or answers something else."""

    inner: Transport
    absent: Absent = lambda phase, t: False
    wrong: Callable[[str, bytes], bytes] = lambda phase, blob: blob
    site: str = "north"
    count: dict[str, int] = field(default_factory=dict)

    def exchange(
        self, phase: str, blobs: Mapping[str, bytes], timeout: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        t = self.count.setdefault(phase, -1) + 1
        self.count[phase] = t
        gone = self.site in blobs and self.absent(phase, t)
        here = {name: blob for name, blob in blobs.items() if not (gone and name == self.site)}
        replies, missing = self.inner.exchange(phase, here, timeout)
        if self.site in replies:
            replies[self.site] = self.wrong(phase, replies[self.site])
        return replies, missing | ({self.site: "it is silent"} if gone else {})
