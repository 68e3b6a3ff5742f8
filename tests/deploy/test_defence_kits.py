"""What `prepare` writes for two servers and for masked sums: folders, and keys that no server can replace."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from deploy_builders import SITES, make_tables, plan

from gfl_lightning.checks import InputError
from gfl_lightning.deploy import command
from gfl_lightning.deploy.boxes import SECOND
from gfl_lightning.deploy.configuration import Deployment
from gfl_lightning.deploy.defences import party_for
from gfl_lightning.deploy.folders import ServerFolder, SiteFolder
from gfl_lightning.deploy.masking.keys import Identity
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.nvflare.executor import _party
from gfl_lightning.deploy.nvflare.jobs import write_job
from gfl_lightning.deploy.nvflare.kits import write_kits
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.roster import Roster
from gfl_lightning.deploy.second_server import SecondServer
from gfl_lightning.deploy.site import Site
from gfl_lightning.graphs.tables.edges import EdgeColumns


def kits(folder: Path, chosen: Plan) -> Path:
    make_tables(folder)
    write_kits(
        Deployment(chosen, Roster(SITES), folder / "edges.csv", EdgeColumns(), "localhost", 8002), folder / "out"
    )
    return folder / "out"


def test_the_second_server_has_a_folder_and_sites_know_its_key(tmp_path: Path) -> None:
    made = kits(tmp_path, plan(topology="two_servers"))
    assert {one.name for one in made.iterdir()} == {"server", SECOND, "sites", "authority"}
    key = made / SECOND / "run" / "identity.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for site in SITES:
        assert (made / "sites" / site / "run" / "second.pub").read_bytes() == Identity.kept_in(key).public
    assert ServerFolder(made / "server").participants == (*SITES, SECOND)
    assert "north.csv" not in "".join(str(file) for file in (made / SECOND).rglob("*"))
    second = _party(made / SECOND)
    assert isinstance(second, SecondServer)
    assert second.identity == Identity.kept_in(key).public
    SiteFolder(made / "sites" / "north").use(tmp_path / "north.csv")
    assert isinstance(_party(made / "sites" / "north"), Site)
    job = write_job(made / "server", [*SITES, SECOND])
    assert json.loads((job / "meta.json").read_text())["deploy_map"] == {"app": ["server", *SITES, SECOND]}


def test_masked_sites_know_each_others_keys(tmp_path: Path) -> None:
    chosen = plan(masking=Masking(on=True))
    made = kits(tmp_path, chosen)
    assert not (made / SECOND).exists()
    runs = {site: made / "sites" / site / "run" for site in SITES}
    public = {site: Identity.kept_in(run / "identity.key").public.hex() for site, run in runs.items()}
    assert len(set(public.values())) == len(SITES)
    assert all(json.loads((run / "identities.json").read_text()) == public for run in runs.values())
    assert party_for(chosen, "north", runs["north"]) is not party_for(plan(), "north", runs["north"])


def test_a_plain_federation_has_neither(tmp_path: Path) -> None:
    made = kits(tmp_path, plan())
    assert not list(made.rglob("identity.key"))
    assert ServerFolder(made / "server").participants == tuple(SITES)


def test_a_server_is_no_second_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = kits(tmp_path, plan())
    with pytest.raises(SystemExit) as ended:
        command.main(["second", str(made / "server")])
    assert ended.value.code == 2
    assert "DIR must be the folder of a second server" in capsys.readouterr().err
    with pytest.raises(InputError, match="sites must not be named second"):
        SecondServer(
            plan(topology="two_servers"), Roster({SECOND: ("z",)}), ServerFolder(made / "server").graph, tmp_path
        )
