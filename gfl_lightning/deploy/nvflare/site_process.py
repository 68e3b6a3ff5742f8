"""A site's operator: starts NVFlare's client with the site's kit and waits until the server says that it is over."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from gfl_lightning.deploy.folders import SiteFolder
from gfl_lightning.deploy.nvflare import processes
from gfl_lightning.deploy.nvflare.kit_check import require_kit
from gfl_lightning.deploy.site_model import FILE
from gfl_lightning.deploy.site_table import SiteTable

LOOK = 0.5


@dataclass(frozen=True)
class SiteProcess:
    """Runs a site from beginning to end.

    Args:
        folder: of the site.
        samples: its table, checked before anything is started.
    """

    folder: SiteFolder
    samples: Path

    def run(self) -> Path | None:
        """Take part until the server ends it; the file of the model, if one was received."""
        require_kit(self.folder.path, "client")
        clients = self.folder.clients
        SiteTable(str(self.samples), self.folder.plan.tables, clients.names).columns()
        self.folder.use(self.samples)
        take_part(self.folder.path)
        file = self.folder.run / FILE
        return file if file.is_file() else None


def take_part(folder: Path) -> None:
    """Run NVFlare's client with the kit of a folder until the server ends it."""
    require_kit(folder, "client")
    with processes.only_operator(folder):
        process = processes.start(folder)
        try:
            while process.poll() is None:
                time.sleep(LOOK)
        finally:
            processes.end(process)
