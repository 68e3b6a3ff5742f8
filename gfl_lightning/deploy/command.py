"""``python -m gfl_lightning deploy prepare|server|second|site|status|predict|demo``: a federation of real processes."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gfl_lightning.checks import require
from gfl_lightning.command_line import EXIT_TERMINATED, Parser, answered

ABOUT = "Run a federation of real processes: a server, and sites that keep their own tables."
EXIT_STOPPED = 4
GOES_ON = "stopped; the same command goes on from the last round on disk"
NEEDED = ("nvflare", "safetensors", "cryptography", "psutil")


def main(arguments: Sequence[str]) -> None:
    """Run a command, turning a mistake into one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, _terminated)
    with answered():
        given = _parser().parse_args(arguments)
        lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        require(not lacking, "the installation", "have the extra deploy: pip install 'gfl-lightning[deploy]'", lacking)
    with answered(given.interrupted):
        sys.exit(given.run(given))


def _terminated(number: int, frame: Any) -> NoReturn:
    sys.exit(EXIT_TERMINATED)


def _parser() -> Parser:
    parser = Parser(prog="python -m gfl_lightning deploy", description=ABOUT)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str, interrupted: str = ""
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run, interrupted=interrupted)
        return made

    prepare = command("prepare", _prepare, "write a folder with certificates for the server and for each site")
    prepare.add_argument("--config", type=Path, required=True, metavar="FILE", help="configuration of a fit on tables")
    prepare.add_argument("--sites", type=Path, required=True, metavar="FILE", help="which clients are at which site")
    prepare.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    server = command("server", _server, "run the server and all rounds; ends with the summary", GOES_ON)
    server.add_argument("folder", type=Path, metavar="DIR", help="the server's folder")
    second = command("second", _second, "run the second of two servers until the first ends it", GOES_ON)
    second.add_argument("folder", type=Path, metavar="DIR", help="the second server's folder")
    site = command("site", _site, "run a site on its own table until the server ends it", GOES_ON)
    site.add_argument("folder", type=Path, metavar="DIR", help="the site's folder")
    site.add_argument("--samples", type=Path, required=True, metavar="FILE", help="table with rows of its clients only")
    status = command("status", _status, "how far a deployment is")
    status.add_argument("folder", type=Path, metavar="DIR", help="the folder of the server or of a site")
    predict = command("predict", _predict, "predict at a site for its own rows, with the model that it received")
    predict.add_argument("folder", type=Path, metavar="DIR", help="the site's folder")
    predict.add_argument("--samples", type=Path, required=True, metavar="FILE", help="table of rows to predict for")
    predict.add_argument("--output", type=Path, default=Path("predictions.csv"), metavar="FILE", help="a new table")
    what = "three sites and a server on this machine, with certificates, from beginning to end"
    demo = command("demo", _demo, what, "stopped, with its server and sites; another demo needs another folder (--out)")
    demo.add_argument("--out", type=Path, default=Path("runs/deploy_demo"), metavar="DIR", help="a new folder")
    demo.add_argument("--rounds", type=int, default=40, metavar="T", help="rounds (default 40)")
    return parser


def _prepare(given: argparse.Namespace) -> int:
    from gfl_lightning.deploy.configuration import read_deployment  # noqa: PLC0415  # seconds of imports
    from gfl_lightning.deploy.nvflare.kits import write_kits  # noqa: PLC0415

    deployment = read_deployment(given.config, given.sites)
    write_kits(deployment, given.out)
    sites = ", ".join(f"sites/{name}" for name in deployment.roster.sites)
    print(f"{given.out} has server, {sites} and authority, whose key made the certificates: keep it offline")
    return 0


def _server(given: argparse.Namespace) -> int:
    from gfl_lightning.deploy.folders import ServerFolder  # noqa: PLC0415
    from gfl_lightning.deploy.watching import supervised  # noqa: PLC0415

    return supervised(ServerFolder(given.folder))


def _second(given: argparse.Namespace) -> int:
    from gfl_lightning.deploy.folders import ServerFolder  # noqa: PLC0415
    from gfl_lightning.deploy.nvflare.site_process import take_part  # noqa: PLC0415

    folder = ServerFolder(given.folder)
    two = folder.plan.topology == "two_servers"
    require(two, "DIR", "be the folder of a second server, which only topology: two_servers has", str(given.folder))
    folder.require_whole()
    take_part(folder.path)
    return 0


def _site(given: argparse.Namespace) -> int:
    from gfl_lightning.deploy.folders import SiteFolder  # noqa: PLC0415
    from gfl_lightning.deploy.nvflare.site_process import SiteProcess  # noqa: PLC0415

    file = SiteProcess(SiteFolder(given.folder), given.samples).run()
    print(f"the model is in {file}" if file else f"no model was received; {given.folder / 'console.txt'} says more")
    return 0 if file else EXIT_STOPPED


def _status(given: argparse.Namespace) -> int:
    from gfl_lightning.deploy.status import status_of  # noqa: PLC0415

    print(status_of(given.folder))
    return 0


def _predict(given: argparse.Namespace) -> int:
    from gfl_lightning.deploy.folders import SiteFolder  # noqa: PLC0415
    from gfl_lightning.deploy.site_model import read_site_model  # noqa: PLC0415
    from gfl_lightning.reports.predictions import require_ending, write_table  # noqa: PLC0415

    require_ending(given.output)
    table = read_site_model(SiteFolder(given.folder).run).predict(str(given.samples))
    write_table(table, given.output)
    print(f"predictions of {len(table)} samples: {given.output}")
    return 0


def _demo(given: argparse.Namespace) -> int:
    from gfl_lightning.deploy.demo import demo  # noqa: PLC0415

    return demo(given.out, given.rounds)
