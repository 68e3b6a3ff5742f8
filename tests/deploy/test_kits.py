"""What `prepare` writes, and what the commands say to mistakes."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from deploy_builders import SITES, driver, make_tables, plan

from gfl_lightning.checks import InputError
from gfl_lightning.deploy import command
from gfl_lightning.deploy.configuration import Deployment
from gfl_lightning.deploy.folders import ServerFolder, SiteFolder
from gfl_lightning.deploy.news import NewsFile
from gfl_lightning.deploy.nvflare.jobs import CONTROLLER, EXECUTOR, keep_inside, write_job
from gfl_lightning.deploy.nvflare.kits import write_kits
from gfl_lightning.deploy.outcome import read_outcome, write_outcome
from gfl_lightning.deploy.progress import Store
from gfl_lightning.deploy.roster import Roster
from gfl_lightning.deploy.status import status_of
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.reports.screen import render


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kits")
    make_tables(folder)
    deployment = Deployment(plan(), Roster(SITES), folder / "edges.csv", EdgeColumns(), "localhost", 8002)
    write_kits(deployment, folder / "out")
    return folder / "out"


def test_server_and_sites_get_folders_of_their_own(kits: Path) -> None:
    assert {one.name for one in kits.iterdir()} == {"server", "sites", "authority"}
    server, north = ServerFolder(kits / "server"), SiteFolder(kits / "sites" / "north")
    assert server.plan == north.plan == plan()
    assert server.graph.num_clients == 6
    assert north.clients.numbers == {"a": 0, "d": 3, "f": 5}
    text = "".join(file.read_text() for file in (kits / "sites" / "north").rglob("*.json"))
    assert '"b"' not in text
    assert not list((kits / "sites").rglob("edges*"))


def test_secrets_are_for_their_owners_and_certificates_of_one_authority(kits: Path) -> None:
    secret = [
        *kits.rglob("*.key"),
        *kits.rglob("plan.json"),
        *kits.rglob("roster.json"),
        *(kits / "authority").iterdir(),
    ]
    assert len(secret) > 8
    assert {stat.S_IMODE(file.stat().st_mode) for file in secret} == {0o600}
    assert stat.S_IMODE((kits / "authority").stat().st_mode) == 0o700
    roots = {file.read_bytes() for file in kits.rglob("rootCA.pem")}
    assert len(roots) == 1
    authority = x509.load_pem_x509_certificate(roots.pop())
    for file in kits.rglob("*.crt"):
        x509.load_pem_x509_certificate(file.read_bytes()).verify_directly_issued_by(authority)


def test_a_site_runs_one_class_and_no_code_of_others(kits: Path) -> None:
    for site in SITES:
        local = kits / "sites" / site / "local"
        resources = json.loads((local / "resources.json").read_text())
        assert resources["class_allow_list"] == [EXECUTOR]
        assert resources["class_list_enforcement_mode"] == "enforce"
        rights = json.loads((local / "authorization.json").read_text())["permissions"]
        assert set(rights) == {"project_admin"}
        assert rights["project_admin"]["byoc"] == rights["project_admin"]["shell_commands"] == "none"


def test_the_server_keeps_its_jobs_inside_its_folder(kits: Path) -> None:
    keep_inside(kits / "server")
    text = (kits / "server" / "local" / "resources.json").read_text()
    assert "/tmp/nvflare" not in text
    job = write_job(kits / "server", ["north", "west"])
    assert json.loads((job / "meta.json").read_text())["deploy_map"] == {"app": ["server", "north", "west"]}
    config = json.loads((job / "app" / "config" / "config_fed_server.json").read_text())
    assert config["server"]["task_request_interval"] == 0.05
    assert config["workflows"][0]["path"] == CONTROLLER


def test_nothing_is_overwritten_and_a_wrong_table_of_edges_leaves_nothing(kits: Path, tmp_path: Path) -> None:
    edges = tmp_path / "edges.csv"
    edges.write_text("one,other\na,z\n")
    deployment = Deployment(plan(), Roster(SITES), edges, EdgeColumns(), "localhost", 8002)
    with pytest.raises(InputError, match="out must be a new or empty folder"):
        write_kits(deployment, kits)
    with pytest.raises(InputError, match="client 'z' is unknown: it has no rows in the sites"):
        write_kits(deployment, tmp_path / "out")
    assert {one.name for one in tmp_path.iterdir()} == {"edges.csv"}


def test_status_and_summary_tell_what_was_reached(kits: Path, tmp_path: Path) -> None:
    make_tables(tmp_path)
    server = ServerFolder(kits / "server")
    assert "0 of 3" in status_of(kits / "server")
    made = driver(tmp_path, plan(), watch=NewsFile(server.run).add)
    made.store = Store(server.run / "progress.gfl")
    outcome = made.run()
    assert "3 of 3" in status_of(kits / "server")
    write_outcome(server, outcome)
    record = read_outcome(server)
    assert record is not None
    shown = render(record, server.run)
    assert f"best round  {outcome.best.round} (validation loss" in shown
    assert "SiteTables(sites=3, clients=6, task=sc)" in shown
    assert "finished" in status_of(kits / "server")
    assert "not received yet" in status_of(kits / "sites" / "north")
    with pytest.raises(InputError, match="DIR must be a folder that prepare wrote"):
        status_of(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "The following arguments are required: COMMAND."),
        (["fly"], "Argument COMMAND: invalid choice"),
        (["server", "nowhere"], "DIR must be the server's folder that prepare wrote, got 'nowhere'."),
        (["site", "nowhere", "--samples", "a.csv"], "DIR must be the folder of a site that prepare wrote"),
        (["prepare", "--config", "a", "--sites", "b", "--out", "c"], "config must name a file, got 'a'."),
        (["predict", "nowhere", "--samples", "a.csv", "--output", "a.txt"], "output must end in .csv or .parquet"),
    ],
)
def test_a_users_mistake_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert f"error: {sentence}" in capsys.readouterr().err


def test_a_sites_mistakes_are_found_before_anything_is_started(
    kits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_tables(tmp_path)
    with pytest.raises(SystemExit) as ended:
        command.main(["site", str(kits / "sites" / "north"), "--samples", str(tmp_path / "south.csv")])
    assert ended.value.code == 2
    assert "client 'b' is none of this site's" in capsys.readouterr().err
    assert not (kits / "sites" / "north" / "console.txt").exists()


@pytest.mark.parametrize(
    ("broken", "arguments", "sentence"),
    [
        (
            "server/roster.json",
            ["server", "server"],
            "roster.json must hold sites and edge_columns as prepare",
        ),
        ("server/plan.json", ["status", "server"], "plan must hold aggregator"),
        ("server/edges.csv", ["server", "server"], "DIR must hold the table of edges"),
        ("sites/north/clients.json", ["status", "sites/north"], "clients.json must hold clients as prepare wrote them"),
        ("sites/north/plan.json", ["site", "sites/north", "--samples", "north.csv"], "plan must hold aggregator"),
        ("authority", ["demo", "--rounds", "0", "--out", "new"], "rounds must be at least 1, got 0"),
    ],
)
def test_a_folder_in_which_something_is_broken_is_refused_before_anything_is_started(
    kits: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    broken: str,
    arguments: list[str],
    sentence: str,
) -> None:
    here = Path(shutil.copytree(kits, tmp_path / "kits", ignore=shutil.ignore_patterns("run")))
    file = here / broken
    if file.suffix == ".json":
        file.write_text("{}")
    elif file.suffix:
        file.unlink()
    monkeypatch.chdir(here)
    before = sorted(here.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
    assert sorted(here.rglob("*")) == before


def test_help_needs_neither_torch_nor_nvflare() -> None:
    program = (
        "import sys; sys.argv[1:] = ['deploy', '--help']\n"
        "from gfl_lightning.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'nvflare'} & set(sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "demo" in shown
