"""``python -m gfl_lightning init DIR``: a commented configuration and two tiny tables, to replace by one's own."""

from __future__ import annotations

import csv
import json
import os
import random
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from gfl_lightning.checks import require
from gfl_lightning.command_line import Parser, answered

CLINICS, PATIENTS = 12, 20
CONFIG = """\
# Graph federated learning on tables of your own.
#   python -m gfl_lightning fit --config {folder}/config.yaml
# Replace the two tables, name their columns below, and run again. Paths are relative to where you run it.
# Every option: python -m gfl_lightning fit --data.help ClientTables, and --model.help GFL.

trainer:
  max_steps: 300             # communication rounds at most; the one with the lowest validation loss is kept

model:
  class_path: GFL            # Central and LocalMLPs are baselines: all data in one place, every client alone
  init_args:
    encoder:
      class_path: MLP        # the model that all share; hidden: [] makes it linear
      init_args: {{hidden: [64], bias: true}}
    weighting: samples       # a client counts by its training rows; uniform: all clients alike
    aggregator:
      class_path: APPNP      # Identity: plain federated averaging, nobody sees a neighbour
      init_args:
        alpha: 0.6           # how much a client listens to itself rather than to its neighbours, above 0 and up to 1
    personal:
      class_path: OwnLevel   # a level of each client's own, never uploaded; Shared: one model for all
    # mix: {{fedavg: true, steps: [20, 200]}}  # each client weighs FedAvg and training on alone, by its validation rows
    local:
      lr: 0.2                # the clients' learning rate; 0.01 for counts (loss: Poisson)
      steps: 5               # updates of each client between two rounds
      batch_size: 8          # samples of an update; null: all of a client's

data:
  class_path: ClientTables
  init_args:
    samples: {samples}    # a row per sample; .parquet works too
    edges: {edges}        # a row per pair of connected clients, and their weight if you know one
    task: sc                 # sc: each row has its own label; snc: one label per client; dnc: one row per client
    client: clinic           # column of client ids, any text
    label: outcome           # column of labels, any values; empty where it is unknown
    # loss: SquaredError     # where labels are numbers; Huber with outliers, Poisson for counts
    id: patient              # column of sample ids, unique within a client; leave it out to number the rows
    # split: split           # column of train, val, test or none; without one the split is drawn:
    # split_by: day          # column of times: the earliest rows train, the latest test
    fractions: [0.6, 0.2, 0.2]       # of train, val and test, by row in sc and by client in snc and dnc
    # features: [age, marker, ward]  # all other columns, unless you list them
    categorical: [ward]      # text is categorical anyway, numbers only if you list them
    missing: fill            # by the mean; indicator: and a column that says so; refuse: an error
    scaling: shared          # by statistics of all training rows; per_client: each by its own, nothing is shared
    # class_weights: balanced        # where some labels are rare
"""


def init(folder: str) -> None:
    """Write the files whole or not at all, and say how to go on; a folder that holds anything is left alone."""
    target = Path(folder)
    free = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    require(free, "DIR", "be a new or empty folder, as nothing is overwritten", folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        scratch.chmod(0o755)
        paths = {name: json.dumps(str(target / f"{name}.csv"), ensure_ascii=False) for name in ("samples", "edges")}
        (scratch / "config.yaml").write_text(CONFIG.format(folder=target, **paths), encoding="utf-8")
        _write(scratch / "samples.csv", ("clinic", "patient", "age", "marker", "ward", "outcome"), _samples())
        _write(scratch / "edges.csv", ("clinic", "near"), _edges())
        os.replace(scratch, target)
    except BaseException:
        shutil.rmtree(scratch)
        raise
    print(f"wrote config.yaml, samples.csv and edges.csv to {target}; now run")
    print(f"  python -m gfl_lightning fit --config {shlex.quote(str(target / 'config.yaml'))}")


def main(arguments: Sequence[str]) -> None:
    """Run ``init``, turning a mistake into one sentence and exit code 2."""
    about = "Write a commented configuration and two tiny tables, to replace by your own."
    parser = Parser(prog="python -m gfl_lightning init", usage="%(prog)s DIR", description=about)
    parser.add_argument("folder", metavar="DIR", help="a new or empty folder")
    with answered():
        init(parser.parse_args(arguments).folder)


def _samples() -> Iterable[tuple[object, ...]]:
    """Patients of clinics on a ring: on one side of it most fall ill, on the other few."""
    draw = random.Random(0)
    for clinic in range(CLINICS):
        risk = 0.8 if clinic < CLINICS // 2 else 0.2
        for patient in range(1, PATIENTS + 1):
            ill = draw.random() < risk
            age = round(draw.gauss(64 if ill else 54, 12))
            marker = "" if draw.random() < 0.05 else f"{draw.gauss(1.4 if ill else 1.0, 0.5):.2f}"
            yield f"clinic {clinic + 1}", f"P{patient:02d}", age, marker, draw.choice("AB"), "ill" if ill else "well"


def _edges() -> Iterable[tuple[object, ...]]:
    for clinic in range(CLINICS):
        yield f"clinic {clinic + 1}", f"clinic {(clinic + 1) % CLINICS + 1}"


def _write(file: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(header)
        table.writerows(rows)
