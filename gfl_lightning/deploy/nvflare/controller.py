"""The server as NVFlare runs it: one job is the rest of the rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.driver import Driver
from gfl_lightning.deploy.folders import ServerFolder, write_json
from gfl_lightning.deploy.news import NewsFile
from gfl_lightning.deploy.nvflare.transport import NVFlareTransport
from gfl_lightning.deploy.outcome import write_outcome
from gfl_lightning.deploy.progress import Store
from gfl_lightning.engine.engine import DivergedError

CHECK_PERIOD = 0.02
REFUSAL = "refusal.json"


class RoundsController(Controller):  # type: ignore[misc]
    """Runs a driver over the sites of a job, from the checkpoint in the server's folder if there is one."""

    def __init__(self) -> None:
        super().__init__(task_check_period=CHECK_PERIOD)

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing: all is done in the control flow."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Make the rounds that are left, and write what came of them."""
        path = Path(fl_ctx.get_engine().get_workspace().get_root_dir())
        try:
            folder = ServerFolder(path)
            driver = Driver(
                folder.plan,
                folder.roster,
                folder.graph,
                NVFlareTransport(self, fl_ctx, abort_signal),
                Store(folder.run / "progress.gfl"),
                NewsFile(folder.run).add,
            )
            write_outcome(folder, driver.run())
        except (InputError, DivergedError) as mistake:
            write_json(path / "run" / REFUSAL, {"sentence": str(mistake)})
            self.system_panic("the rounds cannot go on", fl_ctx)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is left open."""

    def process_result_of_unknown_task(
        self, client: Any, task_name: str, client_task_id: str, result: Any, fl_ctx: FLContext
    ) -> None:
        """An answer that came too late is dropped."""
        self.log_warning(fl_ctx, f"a late answer of {client.name} to {task_name} was dropped")
