"""How far a deployment is, from the files in a folder: it need not be running."""

from __future__ import annotations

import math
from pathlib import Path

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.folders import CLIENTS, ROSTER, ServerFolder, SiteFolder
from gfl_lightning.deploy.news import NewsFile
from gfl_lightning.deploy.outcome import read_outcome
from gfl_lightning.deploy.site_model import FILE


def status_of(folder: Path) -> str:
    """Some lines on the deployment of a server's or a site's folder."""
    if (folder / ROSTER).is_file():
        lines = _server(ServerFolder(folder))
    elif (folder / CLIENTS).is_file():
        lines = _site(SiteFolder(folder))
    else:
        raise InputError(f"DIR must be a folder that prepare wrote, got {str(folder)!r}.")
    return "\n".join(f"{name:>14}  {value}" for name, value in lines.items())


def _server(folder: ServerFolder) -> dict[str, str]:
    plan, roster, records = folder.plan, folder.roster, NewsFile(folder.run).read()
    lines = {
        "sites": f"{len(roster.sites)} with {len(roster.clients)} clients: {', '.join(roster.sites)}",
        "rounds": f"{records[-1]['round'] if records else 0} of {plan.rounds}",
    }
    if records:
        last = records[-1]
        lines["last round"] = f"{last['trained']} clients trained, {last['seconds']:.2f} s"
        lines["absent"] = "; ".join(f"{site}: {why}" for site, why in last["missing"].items()) or "no site"
        old = ", ".join(f"{site} {age} rounds" for site, age in last["ages"].items() if age > 0)
        lines["old uploads"] = old or "none"
        if last["metrics"]:
            lines["validation"] = f"loss {last['metrics']['val']['loss']:.4f}"
    found = read_outcome(folder)
    if found is not None:
        accuracy = found["test_accuracy"]
        told = f"test accuracy {100 * accuracy:.2f} %" if not math.isnan(accuracy) else "metrics are not reported"
        lines["finished"] = f"best round {found['best_round']}, {told}"
    return lines


def _site(folder: SiteFolder) -> dict[str, str]:
    clients = folder.clients
    model = folder.run / FILE
    return {
        "site": f"{clients.site} with {len(clients.names)} clients: {', '.join(clients.names)}",
        "model": str(model) if model.is_file() else "not received yet",
    }
