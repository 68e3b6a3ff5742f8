"""Whom the server's operator waits for before it submits the rounds, by a clock of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deploy_builders import SITES, make_tables, plan, roster

from gfl_lightning.deploy.folders import ServerFolder
from gfl_lightning.deploy.nvflare import supervisor
from gfl_lightning.deploy.nvflare.supervisor import RETURN, SETTLE, StoppedError, Supervisor
from gfl_lightning.graphs.tables.edges import EdgeColumns


@dataclass
class Clock:
    """Time that passes when somebody sleeps."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Heard:
    """A session that knows when each site was first heard of; from then on it is heard of every 5 seconds."""

    clock: Clock
    since: dict[str, float]

    def get_system_info(self) -> Any:
        here = [site for site, at in self.since.items() if self.clock.now - 1000 >= at]
        return type("Info", (), {"client_info": [_client(site, self.clock.now) for site in here]})


def _client(name: str, last: float) -> Any:
    return type("Client", (), {"name": name, "last_connect_time": last})


@pytest.mark.parametrize(
    ("settle", "third", "found", "seconds"),
    [(RETURN, 35.0, 3, 35), (SETTLE, 35.0, 2, 12), (RETURN, 500.0, 2, 42), (SETTLE, 0.0, 3, 2)],
)
def test_after_its_own_absence_the_server_gives_sites_time_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settle: float, third: float, found: int, seconds: float
) -> None:
    """A site whose last heartbeat fell into the absence sends no other one for half a minute."""
    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)
    make_tables(tmp_path)
    folder = ServerFolder.prepare(tmp_path / "kit", plan(), roster(), tmp_path / "edges.csv", EdgeColumns())
    session: Any = Heard(clock, {"north": 0.0, "south": third, "west": 2.0})
    here = Supervisor(folder, tell=lambda sentence: None)._wait_for_sites(session, set(SITES), 2, settle)
    assert len(here) == found
    assert clock.now - 1000 == pytest.approx(seconds, abs=1)


def test_too_few_sites_are_waited_for_with_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)
    make_tables(tmp_path)
    folder = ServerFolder.prepare(tmp_path / "kit", plan(), roster(), tmp_path / "edges.csv", EdgeColumns())
    session: Any = Heard(clock, {"north": 0.0})
    with pytest.raises(StoppedError, match="fewer than 2 sites were connected for too long"):
        Supervisor(folder, lambda sentence: None, patience=90.0)._wait_for_sites(session, set(SITES), 2, SETTLE)
