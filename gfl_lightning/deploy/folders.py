"""The folders of a deployment: what `prepare` writes for the server and for each site, and what they add to it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfl_lightning.checks import InputError, require
from gfl_lightning.deploy.boxes import SECOND
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.roster import Roster, graph_without_data
from gfl_lightning.deploy.site import OwnClients
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.whole_files import whole_file

PLAN, ROSTER, EDGES, CLIENTS, SAMPLES = "plan.json", "roster.json", "edges", "clients.json", "samples.json"


@dataclass(frozen=True)
class ServerFolder:
    """What the server holds: the plan, the clients of each site and the graph. No data.

    Args:
        path: the folder.
    """

    path: Path

    @classmethod
    def prepare(cls, path: Path, plan: Plan, roster: Roster, edges: Path, columns: EdgeColumns) -> ServerFolder:
        """Write it; the table of edges is checked against the roster first."""
        graph_without_data(roster, str(edges), columns, plan.tables.settings.separator)
        write_json(path / PLAN, plan.state())
        write_json(path / ROSTER, {"sites": roster.state(), "edge_columns": vars(columns)})
        shutil.copyfile(edges, path / f"{EDGES}{edges.suffix}")
        (path / f"{EDGES}{edges.suffix}").chmod(0o600)
        return cls(path)

    def __post_init__(self) -> None:
        require((self.path / ROSTER).is_file(), "DIR", "be the server's folder that prepare wrote", str(self.path))

    @property
    def plan(self) -> Plan:
        """What is done."""
        return Plan.from_state(read_json(self.path / PLAN))

    @property
    def roster(self) -> Roster:
        """Which clients are at which site."""
        return Roster.from_state(self._kept["sites"])

    @property
    def _kept(self) -> Mapping[str, Any]:
        return read_sections(self.path / ROSTER, ("sites", "edge_columns"))

    @property
    def participants(self) -> tuple[str, ...]:
        """Who connects to the server: the sites, and the second server where there is one."""
        return (*self.roster.sites, *((SECOND,) if self.plan.topology == "two_servers" else ()))

    @property
    def graph(self) -> ClientGraph:
        """The graph of the clients."""
        found = [file for file in self.path.glob(f"{EDGES}.*") if file.suffix in (".csv", ".parquet")]
        require(len(found) == 1, "DIR", "hold the table of edges, as prepare wrote it", str(self.path))
        edges = found[0]
        columns = EdgeColumns(**self._kept["edge_columns"])
        return graph_without_data(self.roster, str(edges), columns, self.plan.tables.settings.separator)

    def require_whole(self) -> None:
        """Refuse it before anything is started where something in it is missing or broken."""
        for part in ("plan", "graph"):
            getattr(self, part)

    @property
    def run(self) -> Path:
        """What the rounds leave: progress, news, summary."""
        return self.path / "run"


@dataclass(frozen=True)
class SiteFolder:
    """What a site holds: the plan and its own clients. The table stays where it is.

    Args:
        path: the folder.
    """

    path: Path

    @classmethod
    def prepare(cls, path: Path, plan: Plan, roster: Roster, site: str) -> SiteFolder:
        """Write it."""
        write_json(path / PLAN, plan.state())
        numbers = {name: roster.number(name) for name in roster.sites[site]}
        write_json(path / CLIENTS, {"site": site, "clients": numbers})
        return cls(path)

    def __post_init__(self) -> None:
        require((self.path / CLIENTS).is_file(), "DIR", "be the folder of a site that prepare wrote", str(self.path))

    @property
    def plan(self) -> Plan:
        """What is done."""
        return Plan.from_state(read_json(self.path / PLAN))

    @property
    def clients(self) -> OwnClients:
        """Whom the site hosts."""
        kept = read_sections(self.path / CLIENTS, ("clients",))
        return OwnClients(str(kept.get("site")), kept["clients"])

    @property
    def samples(self) -> str:
        """The site's table."""
        file = self.path / SAMPLES
        require(file.is_file(), "samples", "be named when the site is started (--samples FILE)", str(self.path))
        return str(read_json(file)["samples"])

    def use(self, samples: Path) -> None:
        """Remember where the table is."""
        write_json(self.path / SAMPLES, {"samples": str(samples.resolve())})

    @property
    def run(self) -> Path:
        """What the rounds leave at the site."""
        return self.path / "run"


def write_json(file: Path, value: Any) -> None:
    """Write a file for its owner alone, whole or not at all."""
    with whole_file(file) as scratch:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(value, stream, indent=2, ensure_ascii=False)


def read_json(file: Path) -> Any:
    """What a file holds; one that is missing or broken is refused."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as broken:
        raise InputError(f"{file} must be a file of this deployment, got {type(broken).__name__}.") from broken


def read_sections(file: Path, names: Sequence[str]) -> Mapping[str, Any]:
    """What a file holds by name; one in which a section is missing is refused."""
    found = read_json(file)
    whole = isinstance(found, dict) and all(isinstance(found.get(name), dict) for name in names)
    require(whole, str(file), f"hold {' and '.join(names)} as prepare wrote them", found)
    return dict(found)
