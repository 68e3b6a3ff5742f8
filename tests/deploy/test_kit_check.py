"""Kits that cannot be used, operators that are two, and servers that send programs: refused before anything runs."""

from __future__ import annotations

import io
import json
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from deploy_builders import SITES, make_tables, plan
from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.fl_constant import FLContextKey, JobConstants, SiteType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.workspace import Workspace
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer
from nvflare.fuel.sec.authz import AuthorizationService
from nvflare.private.fed.app.default_app_validator import DefaultAppValidator
from nvflare.private.fed.utils.app_authz import AppAuthzService
from nvflare.private.fed.utils.app_deployer import AppDeployer
from nvflare.security.security import FLAuthorizer

from gfl_lightning.checks import InputError
from gfl_lightning.deploy import command
from gfl_lightning.deploy.configuration import Deployment
from gfl_lightning.deploy.nvflare import processes
from gfl_lightning.deploy.nvflare.jobs import ADMIN, EXECUTOR
from gfl_lightning.deploy.nvflare.kit_check import require_free_port, require_kit
from gfl_lightning.deploy.nvflare.kits import ORGANISATION, write_kits
from gfl_lightning.deploy.roster import Roster
from gfl_lightning.graphs.tables.edges import EdgeColumns


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two federations of the same names."""
    folder = tmp_path_factory.mktemp("kits")
    make_tables(folder)
    for name in ("ours", "theirs"):
        deployment = Deployment(plan(), Roster(SITES), folder / "edges.csv", EdgeColumns(), "localhost", 8002)
        write_kits(deployment, folder / name)
    return folder


@pytest.fixture
def north(kits: Path, tmp_path: Path) -> Path:
    """A copy of a site's kit, to be spoilt."""
    shutil.copytree(kits / "ours" / "sites" / "north", tmp_path / "north")
    return tmp_path / "north"


def foreign(north: Path, kits: Path) -> None:
    for name in ("client.key", "client.crt"):
        shutil.copy(kits / "theirs" / "sites" / "north" / "startup" / name, north / "startup" / name)


def of_another_site(north: Path, kits: Path) -> None:
    shutil.copy(kits / "ours" / "sites" / "south" / "startup" / "client.crt", north / "startup" / "client.crt")


SPOILT: dict[str, tuple[Callable[[Path, Path], Any], str]] = {
    "no key": (lambda north, kits: (north / "startup" / "client.key").unlink(), "DIR must hold startup/client.key"),
    "no script": (lambda north, kits: (north / "startup" / "sub_start.sh").unlink(), "DIR must hold startup/sub_start"),
    "no policy": (lambda north, kits: (north / "local" / "resources.json").unlink(), "DIR must hold local/resources"),
    "open key": (
        lambda north, kits: (north / "startup" / "client.key").chmod(0o640),
        r"client.key must be readable by its owner alone \(chmod 600\), got 'mode 640'",
    ),
    "broken key": (
        lambda north, kits: (north / "startup" / "client.key").write_text("none"),
        "startup must hold PEM files as prepare wrote them",
    ),
    "foreign": (foreign, "client.crt must be signed by rootCA.pem, got one of another authority"),
    "swapped": (of_another_site, "client.crt must belong to client.key, got 'the certificate of another key'"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_kit_that_cannot_work_is_refused_in_a_sentence(north: Path, kits: Path, how: str) -> None:
    require_kit(north, "client")
    spoil, sentence = SPOILT[how]
    spoil(north, kits)
    with pytest.raises(InputError, match=sentence):
        require_kit(north, "client")


def test_the_command_says_it_without_a_traceback(north: Path, kits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign(north, kits)
    with pytest.raises(SystemExit) as ended:
        command.main(["site", str(north), "--samples", str(kits / "north.csv")])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert not (north / "console.txt").exists()


def test_what_cannot_be_read_or_written_is_a_sentence(
    kits: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: Any) -> None:
        raise PermissionError(13, "Permission denied", "plan.json")

    monkeypatch.setattr("gfl_lightning.deploy.status.status_of", refused)
    with pytest.raises(SystemExit) as ended:
        command.main(["status", str(kits / "ours" / "server")])
    assert ended.value.code == 2
    assert "error: files must be readable and writable, got 'plan.json' Permission denied." in capsys.readouterr().err


def test_a_port_in_use_is_named(kits: Path, tmp_path: Path) -> None:
    shutil.copytree(kits / "ours" / "server", tmp_path / "server")
    file = tmp_path / "server" / "startup" / "fed_server.json"
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file.write_text(file.read_text().replace("8002", str(port)))
        with pytest.raises(InputError, match=f"server.port must be free on this machine, got {port}: Address already"):
            require_free_port(tmp_path / "server")
    require_free_port(tmp_path / "server")
    file.write_text("{}")
    with pytest.raises(InputError, match=r"fed_server.json must be as prepare wrote it, got KeyError"):
        require_free_port(tmp_path / "server")


def test_a_kit_has_one_operator_and_what_a_killed_one_left_is_ended(tmp_path: Path) -> None:
    """The process that is left names the engine and the folder; one of another folder is not touched."""
    idle = "import time; time.sleep(600)"
    (tmp_path / "north").mkdir()
    left, other = (
        subprocess.Popen([sys.executable, "-c", idle, "nvflare.private.fed.app.client.client_train", str(folder)])
        for folder in (tmp_path / "north", tmp_path / "northern")
    )
    try:
        with processes.only_operator(tmp_path / "north"):
            assert not psutil.pid_exists(left.pid)
            with pytest.raises(InputError, match="DIR must not be in use by another process"):
                processes.only_operator(tmp_path / "north").__enter__()
        with processes.only_operator(tmp_path / "north"):
            assert psutil.pid_exists(other.pid)
            assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


@pytest.fixture
def workspace(north: Path) -> Iterator[Workspace]:
    """A site's folder as NVFlare's client opens it, with the rights that ``prepare`` wrote."""
    policy = json.loads((north / "local" / "authorization.json").read_text())
    was, validator = AuthorizationService.the_authorizer, AppAuthzService.app_validator
    AuthorizationService.the_authorizer = None
    AuthorizationService.initialize(FLAuthorizer(ORGANISATION, policy))
    AppAuthzService.initialize(DefaultAppValidator(site_type=SiteType.CLIENT))
    yield Workspace(root_dir=str(north), site_name="north")
    AuthorizationService.the_authorizer, AppAuthzService.app_validator = was, validator


def app(**files: str) -> bytes:
    """An app as a server sends it."""
    config = json.dumps({"format_version": 2, "executors": []})
    with io.BytesIO() as stream:
        with zipfile.ZipFile(stream, "w") as packed:
            packed.writestr(f"config/{JobConstants.CLIENT_JOB_CONFIG}", config)
            for name, text in files.items():
                packed.writestr(name.replace("__", "/") + ".py", text)
        return stream.getvalue()


def deployed(workspace: Workspace, content: bytes, **meta: Any) -> str:
    """What NVFlare's own deployer says to an app of our server's operator."""
    submitter = {JobMetaKey.SUBMITTER_NAME: ADMIN, JobMetaKey.SUBMITTER_ORG: ORGANISATION}
    stated = submitter | {JobMetaKey.SUBMITTER_ROLE: "project_admin"} | meta
    return AppDeployer().deploy(workspace, "job", {str(k): v for k, v in stated.items()}, "app", content, FLContext())


def test_a_server_cannot_send_programs_to_a_site(workspace: Workspace) -> None:
    """By NVFlare's deployer with the site's own rights: whatever the server allows itself or says of the sender."""
    assert not deployed(workspace, app())
    assert "BYOC not permitted" in deployed(workspace, app(custom__evil="import os"))
    assert not (Path(workspace.get_run_dir("job")) / "app" / "custom").exists()
    for role in ("lead", "member", "org_admin", "anything"):
        said = deployed(workspace, app(custom__evil="import os"), **{JobMetaKey.SUBMITTER_ROLE: role})
        assert "BYOC not permitted" in said


@pytest.mark.parametrize(
    "path",
    [
        "subprocess.Popen",
        "os.system",
        "nvflare.app_common.executors.client_api_launcher_executor.ClientAPILauncherExecutor",
        "gfl_lightning.deploy.nvflare.controller.RoundsController",
        f"{EXECUTOR}s",
    ],
)
def test_a_job_can_name_one_class_at_a_site(workspace: Workspace, path: str) -> None:
    guard, context = ComponentPathAuthorizer(), FLContext()
    context.set_prop(FLContextKey.JOB_META, {AppValidationKey.BYOC: False}, private=True, sticky=False)
    guard.authorize_component_config({"path": EXECUTOR}, fl_ctx=context, workspace=workspace)
    with pytest.raises(Exception, match="is not in allow_list"):
        guard.authorize_component_config({"path": path}, fl_ctx=context, workspace=workspace)


def test_nothing_of_a_deployment_reads_pickles() -> None:
    root = Path(command.__file__).parent
    text = "".join(file.read_text(encoding="utf-8") for file in root.rglob("*.py"))
    assert not re.search(
        r"(import|from) pickle|joblib|marshal|(?<!safetensors\.)torch\.(load|save)|\b(eval|exec)\(", text
    )
