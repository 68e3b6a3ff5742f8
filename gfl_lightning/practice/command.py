"""``python -m gfl_lightning compare`` and ``tune``: their arguments, without importing anything that takes long."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from gfl_lightning.checks import require
from gfl_lightning.command_line import Parser, answered
from gfl_lightning.whole_files import try_writing

ABOUT = {
    "compare": "Train the model of a configuration, the same on shuffled edges, FedAvg, isolated models and models of "
    "all rows in one place, on several splits, and say whether the graph helps.",
    "tune": "Search for good settings by validation loss, and write a configuration to fit with.",
}


@dataclass(frozen=True)
class Order:
    """What is to be run.

    Args:
        config: configuration of a fit.
        out: folder of what `compare` writes, or the configuration that `tune` writes.
        splits: how often the rows are split anew.
        candidates: how many settings `tune` tries.
        command: how it was called.
    """

    config: Path
    out: Path
    splits: int
    candidates: int = 0
    command: str = ""

    def __post_init__(self) -> None:
        require(self.config.is_file(), "--config", "name a file", str(self.config))
        require(self.splits >= 1, "--splits", "be at least 1", self.splits)


def parse(name: str, arguments: list[str]) -> Order:
    """Read the command line of a command."""
    parser = Parser(prog=f"python -m gfl_lightning {name}", description=ABOUT[name])
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="a configuration of fit with GFL")
    if name == "compare":
        parser.add_argument("--splits", type=int, default=5, metavar="J", help="splits of the rows (default: 5)")
        parser.add_argument("--out", type=Path, metavar="DIR", help="folder (default: runs/compare/NAME)")
    else:
        parser.add_argument("--splits", type=int, default=2, metavar="J", help="splits of the rows (default: 2)")
        parser.add_argument("--candidates", type=int, default=32, metavar="N", help="settings to try (default: 32)")
        parser.add_argument("--out", type=Path, metavar="FILE", help="what to write (default: NAME.tuned.yaml)")
    found = parser.parse_args(arguments)
    require(bool(found.config.name), "--config", "be a file", str(found.config))
    command = shlex.join(["python", "-m", "gfl_lightning", name, *arguments])
    if name == "compare":
        out = found.out or Path("runs") / "compare" / found.config.stem
        require(not out.exists() or out.is_dir(), "--out", "be a folder", str(out))
        return Order(found.config, out, found.splits, command=command)
    require(found.candidates >= 1, "--candidates", "be at least 1", found.candidates)
    out = found.out or found.config.with_suffix(".tuned.yaml")
    require(out.suffix in (".yaml", ".yml"), "--out", "end in .yaml", str(out))
    require(out != found.config, "--out", "be another file than the configuration", str(out))
    return Order(found.config, out, found.splits, found.candidates, command)


def main(name: str, arguments: list[str]) -> None:
    """Run a command; one sentence and exit code 2 for a mistake, 130 for Ctrl-C."""
    with answered(interrupted="interrupted; nothing was written"):
        order = parse(name, arguments)
        try_writing(order.out if name == "compare" else order.out.parent)
        if name == "compare":
            from gfl_lightning.practice.compare import compare  # noqa: PLC0415  # seconds of imports, not for help

            compare(order)
        else:
            from gfl_lightning.practice.tune import tune  # noqa: PLC0415

            tune(order)
