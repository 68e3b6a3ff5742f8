"""What the operator of the server gives NVFlare to do: a job, the rest of the rounds for the sites that are there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from gfl_lightning.deploy.folders import write_json

ADMIN, OPERATOR = "admin@gfl.local", "operator"
EXECUTOR = "gfl_lightning.deploy.nvflare.executor.SiteExecutor"
CONTROLLER = "gfl_lightning.deploy.nvflare.controller.RoundsController"
HEARTBEAT_TIMEOUT = 30


def keep_inside(folder: Path) -> None:
    """Let the server store jobs below its own folder, wherever that is now."""
    file = folder / "local" / "resources.json"
    resources = json.loads(file.read_text())
    store = folder.resolve() / "jobs"
    for part in resources["components"]:
        if part["id"] == "job_manager":
            part["args"]["uri_root"] = str(store)
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
    write_json(file, resources)


def write_job(folder: Path, sites: list[str]) -> Path:
    """The job of a deployment for the sites that are there: which classes run, and how quickly they look for work."""
    job = folder / "run" / "job"
    shutil.rmtree(job, ignore_errors=True)
    config = job / "app" / "config"
    config.mkdir(parents=True)
    none: dict[str, Any] = {"task_data_filters": [], "task_result_filters": [], "components": []}
    rounds = {"id": "rounds", "path": CONTROLLER, "args": {}}
    write_json(
        config / "config_fed_server.json",
        {
            "format_version": 2,
            "dead_client_grace_period": 5.0,
            "server": {"heart_beat_timeout": HEARTBEAT_TIMEOUT, "task_request_interval": 0.05},
            "workflows": [rounds],
            **none,
        },
    )
    executor = {"tasks": ["*"], "executor": {"path": EXECUTOR, "args": {}}}
    write_json(config / "config_fed_client.json", {"format_version": 2, "executors": [executor], **none})
    meta = {"name": "rounds", "resource_spec": {}, "min_clients": 1, "deploy_map": {"app": ["server", *sites]}}
    write_json(job / "meta.json", meta)
    return job
