"""``python -m gfl_lightning reproduce``: its arguments, without importing anything that takes long."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from gfl_lightning.checks import require
from gfl_lightning.command_line import Parser, answered
from gfl_lightning.whole_files import try_writing

PAPERS = {
    "dnc": "deterministic node classification, synthetic and subCora, with APPNP, GCN, GAT and GraphSAGE",
    "snc": "stochastic node classification",
    "sc": "supervised classification, with FedMLP and MLPs",
    "dp": "noise on what clients upload, subCora",
    "connectivity": "accuracy against λ_max(B_N L†) (figure 2a)",
    "necessity": "box plot of ours, FedMLP and MLPs (figure 2b)",
    "curves": "loss against updates (figure 3)",
}
OURS = {
    "summary": "only the rows of GFL-APPNP and V1 of the paper's table, all four data sets",
    "cora": "all of Cora, 2708 clients on the public split, against centralised APPNP and GCN",
    "staleness": "accuracy, ‖∇F‖² and σ_H² against I for three estimators",
    "privacy": "accuracy against ε where a client of one sample is hidden: randomised once, or by noise in every round",
    "samples": "the same where clients have many samples, and one client or one sample is hidden",
    "settings": "how the settings of randomised records were chosen, on synthetic networks",
    "audit": "what the messages reveal under every defence, measured by attacks (audit.md)",
    "theory": "the convergence bound's left side and terms against T, I, N and λ_max",
}
REPETITIONS, QUICK_REPETITIONS = 20, 2


@dataclass(frozen=True)
class Order:
    """What is to be run.

    Args:
        studies: names of studies.
        repetitions: of each cell of the paper's studies.
        out: folder of everything that is written.
        jobs: processes.
        quick: small data, few updates.
        command: how it was called, but for what does not matter to the numbers.
        finished: whether nothing is computed and rows that are not finished are left out, by name.
    """

    studies: tuple[str, ...]
    repetitions: int
    out: Path
    jobs: int
    quick: bool
    command: str
    finished: bool = False

    def __post_init__(self) -> None:
        require(self.repetitions >= 1, "--repetitions", "be at least 1", self.repetitions)
        require(self.jobs >= 1, "--jobs", "be at least 1", self.jobs)
        require(not self.out.exists() or self.out.is_dir(), "--out", "be a folder", str(self.out))


def parse(arguments: list[str]) -> Order:
    """Read the command line."""
    parser = Parser(
        prog="python -m gfl_lightning reproduce",
        description="Run the paper's experiments and ours, and show what was measured beside what was published.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_epilog(),
    )
    parser.add_argument("--only", nargs="+", default=["all"], metavar="NAME", help="studies to run (default: all)")
    parser.add_argument(
        "--repetitions", type=int, metavar="R", help=f"repetitions (default {REPETITIONS}; quick {QUICK_REPETITIONS})"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"), help="folder (default: runs/reproduce)")
    parser.add_argument("--jobs", type=int, default=_cores(), help="processes (default: one for each core)")
    parser.add_argument(
        "--quick", action="store_true", help="small data and few updates: shows that everything works, no number counts"
    )
    parser.add_argument(
        "--finished", action="store_true", help="compute nothing: write the page of the rows that are finished in DIR"
    )
    found = parser.parse_args(arguments)
    known = ("all", *PAPERS, *OURS)
    for name in found.only:
        require(name in known, "--only", f"hold names among {', '.join(known)}", name)
    names = [each for name in found.only for each in (PAPERS if name == "all" else (name,))]
    usual = QUICK_REPETITIONS if found.quick else REPETITIONS
    return Order(
        studies=tuple(dict.fromkeys(names)),
        repetitions=usual if found.repetitions is None else found.repetitions,
        out=found.out,
        jobs=found.jobs,
        quick=found.quick,
        command=_spoken(found),
        finished=found.finished,
    )


def main(arguments: list[str]) -> None:
    """Run the studies; one sentence and exit code 2 for a mistake, 130 for Ctrl-C."""
    with answered(interrupted="interrupted; what is finished is kept, and the same command goes on from there"):
        order = parse(arguments)
        try_writing(order.out)
        from gfl_lightning.studies.reproduce import reproduce  # noqa: PLC0415  # seconds of imports, not for help

        reproduce(order)


def _spoken(found: argparse.Namespace) -> str:
    """The command that makes the same numbers."""
    words = ["python -m gfl_lightning reproduce"]
    words += [] if found.only == ["all"] else ["--only", *found.only]
    words += [] if found.repetitions is None else ["--repetitions", str(found.repetitions)]
    words += ["--quick"] if found.quick else []
    return " ".join([*words, *(["--finished"] if found.finished else [])])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _epilog() -> str:
    lines = ["the paper's studies, which together are 'all':"]
    lines += [f"  {name:<13} {about}" for name, about in PAPERS.items()]
    lines += ["", "other studies, run when named:"]
    lines += [f"  {name:<13} {about}" for name, about in OURS.items()]
    lines += ["", "Finished trainings are kept in OUT/cells; the same command goes on where it stopped."]
    return "\n".join(lines)
