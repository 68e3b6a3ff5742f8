"""``python -m tests.campaigns --seconds 600 --seed N``: all campaigns, their table, a line for each failure."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from campaigns.campaign import KINDS, Campaign, conduct
from campaigns.checkpoints import Checkpoints
from campaigns.commands import Commands
from campaigns.configurations import Configurations
from campaigns.faults import FullDisks, Kills, Signals
from campaigns.graph_files import GraphFiles
from campaigns.predictions import Predictions
from campaigns.tables import Tables
from campaigns.writes import Writes

CAMPAIGNS: dict[str, tuple[type[Campaign], float]] = {
    "configurations": (Configurations, 0.25),
    "commands": (Commands, 0.1),
    "tables": (Tables, 0.1),
    "predictions": (Predictions, 0.1),
    "checkpoints": (Checkpoints, 0.15),
    "graphs": (GraphFiles, 0.05),
    "signals": (Signals, 0.15),
    "kills": (Kills, 0.05),
    "disks": (FullDisks, 0.05),
    "writes": (Writes, 0.05),
}


def main() -> int:
    """Run the campaigns; 1 if a traceback or something worse was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all campaigns together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=10**9, help="most cases of each")
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to see one again")
    parser.add_argument("--only", nargs="+", choices=CAMPAIGNS, default=list(CAMPAIGNS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    share = sum(CAMPAIGNS[name][1] for name in given.only)
    print(
        f"| campaign (seed {given.seed}) | cases | {' | '.join(KINDS)} |\n|---|{'---|' * (len(KINDS) + 1)}", flush=True
    )
    failures: list[str] = []
    for name in given.only:
        kind, part = CAMPAIGNS[name]
        with tempfile.TemporaryDirectory() as folder:
            campaign = kind(given.seed, Path(folder))
            tally = conduct(campaign, given.seconds * part / share, given.cases, given.first)
        counts = " | ".join(str(tally.counts[one]) for one in KINDS)
        print(f"| {campaign.name} | {tally.cases} | {counts} |", flush=True)
        failures += tally.failures
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
