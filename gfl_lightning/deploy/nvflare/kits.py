"""Start-up kits: certificates and settings for the server and each site, so narrow that only this program runs."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

from nvflare.lighter.constants import CtxKey
from nvflare.lighter.prov_utils import prepare_builders
from nvflare.lighter.provision import prepare_project
from nvflare.lighter.provisioner import Provisioner

from gfl_lightning.checks import require
from gfl_lightning.deploy.boxes import SECOND
from gfl_lightning.deploy.configuration import Deployment
from gfl_lightning.deploy.defences import write_identities
from gfl_lightning.deploy.folders import ServerFolder, SiteFolder, write_json
from gfl_lightning.deploy.nvflare.jobs import ADMIN, CONTROLLER, EXECUTOR, HEARTBEAT_TIMEOUT, OPERATOR

ORGANISATION, PROJECT = "gfl", "gfl"
SERVER, SITES, AUTHORITY = "server", "sites", "authority"
NOTHING = {"shell_commands": "none", "byoc": "none", "clone_job": "none", "server-predeployed-flwr": "none"}
MAY = {"submit_job": "any", "manage_job": "any", "download_job": "none", "view": "any", "operate": "any"}


def write_kits(deployment: Deployment, out: Path) -> None:
    """Write ``server/``, ``second/`` where there is one, ``sites/NAME/`` and ``authority/``, whole or not at all."""
    require(not out.exists() or not any(out.iterdir()), "out", "be a new or empty folder", str(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        made = Path(scratch) / "made"
        _write(deployment, Path(scratch), made)
        if out.exists():
            out.rmdir()
        made.rename(out)


def _write(deployment: Deployment, scratch: Path, made: Path) -> None:
    kits = _provisioned(deployment, scratch)
    plan, roster = deployment.plan, deployment.roster
    made.mkdir(mode=0o700)
    (made / SITES).mkdir()
    shutil.move(kits / deployment.host, made / SERVER)
    shutil.move(kits / ADMIN, made / SERVER / OPERATOR)
    ServerFolder.prepare(made / SERVER, plan, roster, deployment.edges, deployment.edge_columns)
    _narrow(made / SERVER, CONTROLLER)
    if plan.topology == "two_servers":
        shutil.move(kits / SECOND, made / SECOND)
        ServerFolder.prepare(made / SECOND, plan, roster, deployment.edges, deployment.edge_columns)
        _narrow(made / SECOND, EXECUTOR)
        (made / SECOND).chmod(0o700)
    for site in roster.sites:
        folder = made / SITES / site
        shutil.move(kits / site, folder)
        SiteFolder.prepare(folder, plan, roster, site)
        _narrow(folder, EXECUTOR)
    sites = {site: made / SITES / site / "run" for site in roster.sites}
    write_identities(plan, sites, made / SECOND / "run")
    shutil.move(scratch / PROJECT / "state", made / AUTHORITY)
    for folder in (made / SERVER, made / AUTHORITY, *(made / SITES).iterdir()):
        folder.chmod(0o700)
    for file in (made / AUTHORITY).rglob("*"):
        file.chmod(0o600)


def _provisioned(deployment: Deployment, scratch: Path) -> Path:
    """What NVFlare's provisioning makes, one folder for each participant."""
    people = [{"name": ADMIN, "type": "admin", "org": ORGANISATION, "role": "project_admin"}]
    others = (SECOND,) if deployment.plan.topology == "two_servers" else ()
    people += [{"name": name, "type": "client", "org": ORGANISATION} for name in (*deployment.roster.sites, *others)]
    server = {"name": deployment.host, "type": "server", "org": ORGANISATION, "fed_learn_port": deployment.port}
    builders = "nvflare.lighter.impl"
    project: dict[str, Any] = {
        "api_version": 3,
        "name": PROJECT,
        "description": "graph federated learning",
        "participants": [server, *people],
        "builders": [
            {"path": f"{builders}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {
                "path": f"{builders}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "grpc"},
            },
            {"path": f"{builders}.cert.CertBuilder", "args": {}},
            {"path": f"{builders}.signature.SignatureBuilder", "args": {}},
        ],
    }
    provisioner = Provisioner(str(scratch), prepare_builders(project))
    made = provisioner.provision(prepare_project(project), logger=logging.getLogger(__name__))
    return Path(made.get(CtxKey.CURRENT_PROD_DIR))


def _narrow(folder: Path, component: str) -> None:
    """Let jobs use one class of this program and nothing else: no code of theirs, no shell, no other component."""
    local = folder / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    resources["class_allow_list"] = [component]
    resources["class_list_enforcement_mode"] = "enforce"
    if "allow_log_streaming" in resources:
        resources["allow_log_streaming"] = False
        resources["components"] = [one for one in resources["components"] if one["id"] != "site_log_streamer"]
    for server in resources.get("servers", ()):
        server["heart_beat_timeout"] = HEARTBEAT_TIMEOUT
    write_json(local / "resources.json", resources)
    write_json(local / "authorization.json", {"format_version": "1.0", "permissions": {"project_admin": MAY | NOTHING}})
