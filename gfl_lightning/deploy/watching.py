"""What an operator sees of a deployment: a progress bar, sentences about who comes and goes, and the summary."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

from gfl_lightning.deploy.folders import ServerFolder
from gfl_lightning.deploy.news import NewsFile
from gfl_lightning.deploy.nvflare.supervisor import StoppedError, Supervisor
from gfl_lightning.reports.screen import render

EXIT_STOPPED = 4


def supervised(folder: ServerFolder, patience: float = 3600.0) -> int:
    """Run the server's side to its end and show it; the exit code."""
    records = NewsFile(folder.run).read()
    done = int(records[-1]["round"]) if records else 0
    absent: dict[str, str] = {}
    with tqdm(total=folder.plan.rounds, initial=done, unit="round", file=sys.stderr) as bar:

        def told(record: dict[str, Any]) -> None:
            bar.update(record["round"] - bar.n)
            bar.set_postfix_str(_news(record))
            for site, why in record["missing"].items():
                if absent.get(site) != why:
                    bar.write(f"round {record['round']}: {site} is absent: {why}", file=sys.stderr)
            absent.clear()
            absent.update(record["missing"])

        def tell(sentence: str) -> None:
            bar.write(sentence, file=sys.stderr)

        try:
            found = Supervisor(folder, tell, told, patience).run()
        except StoppedError as stopped:
            bar.write(f"error: {stopped}", file=sys.stderr)
            return EXIT_STOPPED
    print(render(found, folder.run))
    return 0


def _news(record: dict[str, Any]) -> str:
    """What a round is about, in a few words."""
    parts = [f"val_loss={record['metrics']['val']['loss']:.4f}"] if record["metrics"] else []
    parts += [f"uploads of {site} {age} rounds old" for site, age in record["ages"].items() if age > 0]
    return ", ".join([*parts, f"{record['seconds']:.2f} s"])
