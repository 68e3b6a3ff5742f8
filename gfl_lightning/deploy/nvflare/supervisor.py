"""The server's operator: starts NVFlare's server, submits the rounds as a job, and again where a job ended early.

NVFlare 2.9 ends a job when a site's process is killed, and a restarted site cannot join a running job. So a job is only
the rest of the rounds, from the checkpoint that every round leaves, with the sites that are there.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.folders import ServerFolder, read_json
from gfl_lightning.deploy.news import NewsFile
from gfl_lightning.deploy.nvflare import processes
from gfl_lightning.deploy.nvflare.controller import REFUSAL
from gfl_lightning.deploy.nvflare.jobs import ADMIN, OPERATOR, keep_inside, write_job
from gfl_lightning.deploy.nvflare.kit_check import require_free_port, require_kit
from gfl_lightning.deploy.outcome import read_outcome
from gfl_lightning.whole_files import whole_file

Process = subprocess.Popen[bytes]
LOOK = 0.5
START = 300.0  # a machine that is busy with other things takes more than a minute
SETTLE = 2 * 5.0  # two heartbeats of a site
RETURN = 30.0 + SETTLE  # after the server was away: a site gives a heartbeat 30 s before it sends another
RECENT = 20.0
PROGRESS = "progress.gfl"
BETWEEN_LOOKS, WARM_UP = 5.0, 30.0  # a site needs some seconds to start its part of a job


class StoppedError(RuntimeError):
    """The rounds could not be finished; what was reached is on disk."""


@dataclass
class Supervisor:
    """Runs a deployment at the server from beginning to end.

    Args:
        folder: of the server.
        tell: is told sentences about what happens.
        told: is told of every round, as a record.
        patience: seconds without a round or a job after which it gives up.
    """

    folder: ServerFolder
    tell: Callable[[str], None] = print
    told: Callable[[dict[str, Any]], None] = lambda record: None
    patience: float = 3600.0
    _seen: int = field(default=0, init=False)

    def run(self) -> dict[str, Any]:
        """Make all rounds; the record of what came of them."""
        done = read_outcome(self.folder)
        if done is not None:
            return done
        self.folder.require_whole()
        self.folder.run.mkdir(parents=True, exist_ok=True)
        (self.folder.run / REFUSAL).unlink(missing_ok=True)
        self._seen = len(NewsFile(self.folder.run).read())
        keep_inside(self.folder.path)
        require_kit(self.folder.path, "server")
        with processes.only_operator(self.folder.path):
            require_free_port(self.folder.path)
            server = processes.start(self.folder.path)
            try:
                with self._session(server) as session:
                    found = self._supervise(session, server)
                    self._end_sites(session)
                return found
            finally:
                processes.end(server)

    @contextlib.contextmanager
    def _session(self, server: Process) -> Iterator[Session]:
        """A session with the server, once it is up."""
        ends, kit = time.monotonic() + START, str((self.folder.path / OPERATOR).resolve())
        while True:
            if server.poll() is not None:
                raise StoppedError(f"the server did not start; {self.folder.path / processes.CONSOLE} says why")
            try:
                with contextlib.redirect_stdout(io.StringIO()):  # what NVFlare prints would break the bar
                    session = new_secure_session(ADMIN, kit, timeout=5.0)
                break
            except Exception as refused:  # the server is not up yet
                if time.monotonic() > ends:
                    raise StoppedError(f"the server did not answer within five minutes: {refused}") from refused
                time.sleep(LOOK)
        try:
            yield session
        finally:
            with contextlib.suppress(Exception):
                session.close()

    def _supervise(self, session: Session, server: Process) -> dict[str, Any]:
        """Submit jobs until the rounds are made."""
        everyone, started, settle = set(self.folder.participants), time.monotonic(), RETURN
        while time.monotonic() - started < self.patience:
            self._wait_for_room()
            here = self._wait_for_sites(session, everyone, self._least(everyone), settle)
            settle = SETTLE
            before = self._seen
            job = session.submit_job(str(write_job(self.folder.path, sorted(here)).resolve()))
            self._follow(session, server, job, everyone)
            found = read_outcome(self.folder)
            if found is not None:
                return found
            refusal = self.folder.run / REFUSAL
            if refusal.is_file():
                raise InputError(read_json(refusal)["sentence"])
            self.tell(f"the job ended after {self._rounds()} rounds; it is submitted again from there")
            started = time.monotonic() if self._seen > before else started
        raise StoppedError("no round was made for too long")

    def _least(self, everyone: set[str]) -> int:
        """How many sites there must be: all until a round is made, then as many as the plan wants."""
        begun = (self.folder.run / PROGRESS).is_file()
        return self.folder.plan.least_sites if begun else len(everyone)

    def _wait_for_room(self) -> None:
        """Wait until the server's folder can take a checkpoint like the last one."""
        kept, ends, told = self.folder.run / PROGRESS, time.monotonic() + self.patience, False
        size = kept.stat().st_size if kept.is_file() else 2**16
        while True:
            try:
                with whole_file(self.folder.run / "room") as scratch:
                    scratch.write_bytes(bytes(size))
                (self.folder.run / "room").unlink()
                return
            except OSError as full:
                why = f"nothing can be written to {self.folder.run}: {full.strerror}"
            if time.monotonic() > ends:
                raise StoppedError(why)
            if not told:
                self.tell(f"{why}; the rounds go on when there is room")
            told = True
            time.sleep(BETWEEN_LOOKS)

    def _wait_for_sites(self, session: Session, everyone: set[str], least: int, settle: float) -> set[str]:
        """The sites that are connected, once there are enough of them and no other one has come for a while."""
        ends, settled, said = time.monotonic() + self.patience, 0.0, set[str]()
        while time.monotonic() < ends:
            recent = self._connected(session) & everyone
            if recent != said:
                self.tell(f"connected: {', '.join(sorted(recent)) or 'no site yet'}")
                said, settled = recent, time.monotonic()
            enough = len(recent) >= least and everyone - set(self.folder.roster.sites) <= recent
            if recent == everyone or (enough and time.monotonic() - settled > settle):
                return recent
            time.sleep(LOOK)
        raise StoppedError(f"fewer than {least} sites were connected for too long")

    @staticmethod
    def _connected(session: Session) -> set[str]:
        """Sites that were heard of lately."""
        now, clients = time.time(), session.get_system_info().client_info
        return {str(one.name) for one in clients if now - float(one.last_connect_time or 0) < RECENT}

    def _follow(self, session: Session, server: Process, job: str, everyone: set[str]) -> None:
        """Watch a job until it is over; end it where a site has come back, which only a new job can take."""
        started = looked = time.monotonic()
        idle: set[str] = set()
        while True:
            self._tell_rounds()
            status = self._status(session, job, server)
            if status.startswith("FINISHED") or status in ("ABORTED", "ABANDONED", "FAILED"):
                self._tell_rounds()
                return
            if time.monotonic() - looked > BETWEEN_LOOKS and time.monotonic() - started > WARM_UP:
                looked, before = time.monotonic(), idle
                idle = self._idle(session) & everyone
                back = idle & before
                if back and read_outcome(self.folder) is None:
                    self.tell(f"{', '.join(sorted(back))} is here without a part in the job, which is ended")
                    with contextlib.suppress(Exception):
                        session.abort_job(job)
                    idle = set()
            time.sleep(LOOK)

    def _status(self, session: Session, job: str, server: Process) -> str:
        """What NVFlare says of a job; nothing where it is too busy to say."""
        if server.poll() is not None:
            raise StoppedError(f"the server's process has ended; {self.folder.path / processes.CONSOLE} says more")
        try:
            return str(session.get_job_meta(job).get("status", ""))
        except Exception:  # the session's errors have no class in common
            return ""

    @staticmethod
    def _idle(session: Session) -> set[str]:
        """Sites that are connected and run no job."""
        found = session.get_client_job_status() or []
        return {str(one["client_name"]) for one in found if one.get("status") == "no_jobs"}

    def _tell_rounds(self) -> None:
        records = NewsFile(self.folder.run).read()
        for record in records[self._seen :]:
            self.told(record)
        self._seen = len(records)

    def _rounds(self) -> int:
        records = NewsFile(self.folder.run).read()
        return int(records[-1]["round"]) if records else 0

    def _end_sites(self, session: Session) -> None:
        """Tell the sites that it is over."""
        with contextlib.suppress(Exception):
            session.shutdown("client", wait=False)
            time.sleep(2)
