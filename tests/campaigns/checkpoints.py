"""Corrupted checkpoints: bytes changed by accident, and content changed by someone who can seal it again."""

from __future__ import annotations

import copy
import io
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from campaigns.campaign import Campaign, Outcome, command_line

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
    ),
]
COMMON = ["--data=DNC", "--data.num_clients=50", "--data.num_features=5", "--trainer.enable_progress_bar=false"]


@dataclass
class Checkpoints(Campaign):
    """Damaged files are refused; changed ones are refused or taken for what they are, and run nothing."""

    def __post_init__(self) -> None:
        self.name = "corrupted checkpoints"

    def prepare(self) -> None:
        """Train a model."""
        fit = [
            "--model=GFL",
            "--model.encoder.hidden=[4]",
            "--model.server=Momentum",
            "--model.participation.share=0.5",
        ]
        stop = ["--trainer.callbacks=EarlyStopping", "--trainer.callbacks.monitor=val_loss"]
        made = command_line(
            "fit", *fit, *COMMON, *stop, "--trainer.max_steps=4", f"--trainer.default_root_dir={self.folder}/runs"
        )
        assert made.kind == "ran", made
        (last,) = self.folder.rglob("last.ckpt")
        self.blob = last.read_bytes()
        self.content = read_sealed(last, "file")

    def run(self, draw: random.Random) -> Outcome:
        """One case."""
        if draw.random() < 0.6:
            return self._damaged(draw)
        content = copy.deepcopy(self.content)
        for _ in range(draw.randint(1, 2)):
            _change(content, draw)
        Path("x.ckpt").write_bytes(seal(content))
        command = draw.choice(["test", "validate", "predict", "fit"])
        rounds = ["--trainer.max_steps=6"] if command == "fit" else []
        outcome = command_line(command, *COMMON, *rounds, "--ckpt_path=x.ckpt")
        return Outcome("worse", "a program was run") if Path("owned").exists() else outcome

    def _damaged(self, draw: random.Random) -> Outcome:
        blob, place = bytearray(self.blob), draw.randrange(len(self.blob))
        what = draw.randrange(5)
        if what == 0:
            blob[place] ^= 1 << draw.randrange(8)
        elif what == 1:
            del blob[place:]
        elif what == 2:
            blob[place:place] = draw.randbytes(draw.randint(1, 100))
        elif what == 3:
            blob[place : place + 500] = bytes(len(blob[place : place + 500]))
            if bytes(blob) == self.blob:
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
