"""A site as NVFlare runs it: every task is a phase, its data a blob."""

from __future__ import annotations

from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from gfl_lightning.deploy.folders import ROSTER, ServerFolder, SiteFolder
from gfl_lightning.deploy.second_server import SecondServer
from gfl_lightning.deploy.site import Site

BLOB = "blob"


class SiteExecutor(Executor):  # type: ignore[misc]
    """Lives as long as a job: it reads the site's table once and answers phase after phase."""

    def __init__(self) -> None:
        super().__init__()
        self._site: Site | SecondServer | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Open the site's folder when a job begins."""
        if event_type == EventType.START_RUN:
            self._site = _party(Path(fl_ctx.get_engine().get_workspace().get_root_dir()))

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer one phase."""
        blob = shareable.get(BLOB)
        if self._site is None or not isinstance(blob, bytes):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        reply = Shareable()
        reply[BLOB] = self._site.answer(task_name, blob)
        return reply


def _party(root: Path) -> Site | SecondServer:
    """Whoever the folder belongs to: a site, or the second server, which holds the graph."""
    if (root / ROSTER).is_file():
        second = ServerFolder(root)
        return SecondServer(second.plan, second.roster, second.graph, second.run)
    folder = SiteFolder(root)
    return Site(folder.clients, folder.plan, folder.samples, folder.run)
