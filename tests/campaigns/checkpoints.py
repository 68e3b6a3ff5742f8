"""Corrupted checkpoints: bytes changed by accident, and content changed by someone who can seal it again."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from campaigns.campaign import Campaign, Outcome, command_line
from table_builders import clinics

from gfl_lightning.lit.checkpoint_layout import require_layout
from gfl_lightning.sealed_files import read_sealed, seal

NASTY: list[Any] = [
    *(
        None,
        0,
        -1,
        10**30,
        float("nan"),
        "abc",
        "",
        [],
        {},
        [1],
        {"a": 1},
        True,
        torch.zeros(2),
        torch.tensor(float("nan")),
    ),
    *(
        {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "owned"]}},
        "os.system",
        torch.zeros(3, 3).long(),
        reduce(lambda inner, _: [inner, inner], range(60), [1]),
        reduce(lambda inner, _: {"a": inner}, range(90), {}),
    ),
]
QUIET = ["--trainer.enable_progress_bar=false", "--report=false"]
NODES = ["--data=DNC", "--data.num_clients=50", "--data.num_features=5"]
ROWS = ["--data=SC", "--data.num_clients=20", "--data.num_features=4", "--data.test_samples=3"]
STOPPING = ["--trainer.callbacks=EarlyStopping", "--trainer.callbacks.monitor=val_loss"]
ONCE = ["--model.records=RandomisedOnce", "--model.encoder=Linear", "--model.aggregator=ChosenAPPNP"]
ONCE += ['--model.records.features={"class_path": "gfl_lightning.PrivUnit", "init_args": {"dimensions": 2}}']
SIDES = ("hidden", "jacobian", "update")
NOISE = [f"--model.protection.{one}.{name}=1" for one in SIDES for name in ("std", "clip")]
MIX = ["--model.personal=OwnLevel", "--model.mix.fedavg=true", "--model.mix.steps=[2]", "--model.encoder.hidden=[4]"]
MODELS: list[tuple[list[str], list[str]]] = [
    (NODES, ["--model.encoder.hidden=[4]", "--model.server=Momentum", "--model.participation.share=0.5", *STOPPING]),
    (ROWS, [*MIX, "--model.lr_scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau"]),
    (NODES, ONCE),
    (NODES, ["--model.encoder.hidden=[4]", *NOISE]),
    (["--data=ClientTables", "--data.samples=s.csv", "--data.edges=e.csv"], ["--data.task=sc", *MIX]),
]


@dataclass
class Checkpoints(Campaign):
    """Damaged files are refused; changed ones are refused or taken for what they are, and run nothing."""

    def __post_init__(self) -> None:
        self.name = "corrupted checkpoints"

    def prepare(self) -> None:
        """Train models, and export one."""
        samples, edges = clinics(6, 5)
        samples.to_csv(self.folder / "s.csv", index=False)
        edges.to_csv(self.folder / "e.csv", index=False)
        self.trained: list[tuple[list[str], Path]] = []
        for number, (data, options) in enumerate(MODELS):
            folder = self.folder / f"model {number}"
            with contextlib.chdir(self.folder):
                given = [*data, *options, *QUIET, "--trainer.max_steps=4", f"--trainer.default_root_dir={folder}"]
                made = command_line("fit", "--model=GFL", *given)
            assert made.kind == "ran", made
            self.trained += [(data, file) for file in folder.rglob("*.ckpt") if "=" not in file.name]
        (private,) = [file for _, file in self.trained if "model 2" in str(file) and file.name == "best.ckpt"]
        made = command_line("export", f"--ckpt_path={private}", f"--out={private.parent}/out.ckpt")
        assert made.kind == "ran", made
        self.trained.append((NODES, private.parent / "out.ckpt"))

    def run(self, draw: random.Random) -> Outcome:
        """One case."""
        data, file = draw.choice(self.trained)
        if draw.random() < 0.4:
            return _damaged(file.read_bytes(), draw)
        for beside in (*self.folder.glob("*.csv"), *file.parent.rglob("*.key")):
            shutil.copy(beside, beside.name)
        content = read_sealed(file, "file")
        for _ in range(draw.randint(1, 2)):
            _change(content, draw)
        Path("x.ckpt").write_bytes(seal(content))
        command = draw.choice(["test", "validate", "predict", "fit", "export"])
        if command == "export":
            outcome = command_line(command, "--ckpt_path=x.ckpt", "--out=out.ckpt")
        else:
            rounds = ["--trainer.max_steps=6"] if command == "fit" else []
            quiet = QUIET if command == "fit" else QUIET[:1]
            outcome = command_line(command, *data, *quiet, *rounds, "--ckpt_path=x.ckpt")
        return Outcome("worse", "a program was run") if Path("owned").exists() else outcome


def _damaged(whole: bytes, draw: random.Random) -> Outcome:
    """A file some of whose bytes have changed."""
    blob, place = bytearray(whole), draw.randrange(len(whole))
    what = draw.randrange(5)
    if what == 0:
        blob[place] ^= 1 << draw.randrange(8)
    elif what == 1:
        del blob[place:]
    elif what == 2:
        blob[place:place] = draw.randbytes(draw.randint(1, 100))
    elif what == 3:
        blob[place : place + 500] = bytes(len(blob[place : place + 500]))
        if bytes(blob) == whole:
            blob.append(0)
    else:
        blob = blob[place:] + blob[:place] if place else blob + b"x"
    content = read_sealed(io.BytesIO(bytes(blob)), "file")
    require_layout(content, "file")
    return Outcome("worse", "damage was accepted")


def _change(content: Any, draw: random.Random) -> None:
    """Replace or remove something somewhere in nested containers."""
    while True:
        keys: list[Any] = list(content) if isinstance(content, dict) else list(range(len(content)))
        key = draw.choice(keys)
        inner = content[key]
        if isinstance(inner, (dict, list)) and len(inner) and draw.random() < 0.85:
            content = inner
            continue
        if draw.random() < 0.3:
            del content[key]
        else:
            content[key] = draw.choice(NASTY)
        return
