"""With mechanisms that ignore what they are given, nothing that a fit leaves depends on features or labels in use."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.lit import cli
from gfl_lightning.privacy.randomise.mechanism import Array
from gfl_lightning.privacy.randomise.piecewise import Piecewise
from gfl_lightning.privacy.randomise.randomised_response import RandomisedResponse

N = 36
SPLIT = np.resize(["train", "val", "test"], N)


@dataclass(frozen=True)
class FirstClass(RandomisedResponse):
    """Classes in turn, by place, whatever is true."""

    def draw(self, y: Array, outputs: int, epsilon: float, source: np.random.Generator) -> Array:
        return np.arange(len(y)) % outputs


@dataclass(frozen=True)
class Ramp(Piecewise):
    """Numbers from end to end of the range, by place, whatever is true."""

    def draw(self, y: Array, outputs: int, epsilon: float, source: np.random.Generator) -> Array:
        return np.linspace(self.low, self.high, len(y))

    def check(self, loss: Loss) -> None:
        return None


def files(folder: Path, numbers: bool, other: bool) -> None:
    """Tables whose test labels and edges are the same, and nothing else where they are ``other``."""
    source = np.random.default_rng(5 if other else 4)
    label = source.uniform(0, 10, N) if numbers else source.choice(["a", "b"], N, p=[0.9, 0.1] if other else [0.4, 0.6])
    test = SPLIT == "test"
    fixed = np.linspace(1, 9, N) if numbers else np.resize(["a", "b", "b"], N)
    label = np.where(test, np.roll(fixed, 1), label)
    table = {"client": np.arange(N), "age": source.uniform(0, 1, N), "label": label, "split": SPLIT}
    pd.DataFrame(table).to_csv(folder / "samples.csv", index=False)
    ring = {"one": np.r_[np.arange(N), np.arange(0, N, 3)], "other": np.r_[(np.arange(N) + 1) % N, np.arange(0, N, 3)]}
    ring["other"][N:] = (ring["one"][N:] + 9) % N
    pd.DataFrame(ring).to_csv(folder / "edges.csv", index=False)


def left_by(folder: Path, numbers: bool, other: bool, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """What a fit prints and writes, without times."""
    folder.mkdir(exist_ok=True)
    files(folder, numbers, other)
    mechanism = f"{{class_path: {__name__}.Ramp, init_args: {{low: 0, high: 10}}}}"
    labels = mechanism if numbers else f"{{class_path: {__name__}.FirstClass}}"
    public = "labels: [0, 10]" if numbers else "classes: [a, b]"
    config = folder / "fit.yaml"
    config.write_text(
        "trainer:\n  max_steps: 4\n  enable_progress_bar: false\n  default_root_dir: runs\n  callbacks:\n"
        "    - class_path: callbacks.RandomiseOnce\n"
        f"      init_args: {{features: {{class_path: Withheld}}, labels: {labels}}}\n"
        "model: {class_path: GFL, init_args: {encoder: {class_path: Linear}, aggregator: {class_path: ChosenAPPNP},\n"
        "  local: {lr: 0.1, steps: 3}}}\n"
        "data:\n  class_path: ClientTables\n  init_args:\n    samples: samples.csv\n    edges: edges.csv\n"
        f"    task: dnc\n    split: split\n    loss: {{class_path: {'SquaredError' if numbers else 'CrossEntropy'}}}\n"
        f"    public: {{ranges: {{age: [0, 1]}}, {public}}}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["gfl_lightning", "fit", "--config", str(config)])
        capsys.readouterr()
        cli.main()
    run = next(folder.glob("runs/gfl/version_*"))
    told: dict[str, object] = {"printed": untimed(capsys.readouterr().out)}
    told |= {name: untimed((run / name).read_text()) for name in ("summary.json", "report.html")}
    told["metrics"] = (run / "metrics.csv").read_text()
    held = torch.load(run / "best.ckpt", weights_only=True)
    return told | {"weights": held["state_dict"]["W"].tolist(), "interval": held.get("half_width")}


def untimed(text: str) -> str:
    return re.sub(r'\d+ updates, [\d.]+ s|"seconds": [\d.]+|pytest-[\w/-]+|in [\d.]+ s', "", text)


@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
def test_nothing_that_is_left_tells_true_records(
    numbers: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (left_by(tmp_path / name, numbers, name == "y", capsys) for name in "xy")
    for name, told in one.items():
        assert told == two[name], name
    assert one["interval"] is None
    assert "ε = 8 (pure, δ = 0)" in str(one["printed"])
