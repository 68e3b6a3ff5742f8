"""Predictions on random tables by a model that was trained on good ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from campaigns.campaign import Campaign, Outcome, command_line
from campaigns.tables import OPTIONS, accepted_short, tables_of, write_drawn
from table_builders import clinics

from gfl_lightning.lit.gfl import GFL
from gfl_lightning.reports.predictions import prediction_table, write_table


@dataclass
class Predictions(Campaign):
    """Tables that get a probability for each class, or are refused."""

    def __post_init__(self) -> None:
        self.name = "predictions on them"

    def prepare(self) -> None:
        """Train a model."""
        samples, edges = clinics()
        samples.to_csv(self.folder / "s.csv", index=False)
        edges.to_csv(self.folder / "e.csv", index=False)
        tables = ["--data=ClientTables", f"--data.samples={self.folder}/s.csv", f"--data.edges={self.folder}/e.csv"]
        quiet = ["--trainer.enable_progress_bar=false", f"--trainer.default_root_dir={self.folder}/runs"]
        made = command_line(
            "fit", *tables, "--data.task=sc", "--model.encoder.hidden=[4]", "--trainer.max_steps=3", *quiet
        )
        assert made.kind == "ran", made
        (self.best,) = self.folder.rglob("best.ckpt")

    def run(self, draw: random.Random) -> Outcome:
        """One case."""
        write_drawn(draw)
        if draw.random() < 0.03:
            tables = ["--data=ClientTables", "--data.samples=s.csv", "--data.edges=e.csv", "--output=p.csv"]
            return command_line("predict", f"--ckpt_path={self.best}", *tables)
        options = draw.choice(OPTIONS) if draw.random() < 0.5 else {}
        anew = draw.choice([{}, {}, {"representations": "rows"}, {"representations": "kept", "edges": None}])
        data = tables_of(options | anew, encoding=str(self.best))
        model = GFL.load_from_checkpoint(self.best)
        logits = model.predictor_on(data.graph).logits_of(model.current_weights())
        table = prediction_table(data.graph, data.names, torch.softmax(logits, -1))
        write_table(table, Path("p.csv"))
        written = pd.read_csv("p.csv", dtype=str, keep_default_na=False)
        if any(cell.startswith(("=", "+", "@")) for cell in written["client"]):
            return Outcome("worse", "a name that a spreadsheet would run")
        if accepted_short(data):
            return Outcome("worse", "a short row was accepted")
        return (
            Outcome("ran")
            if bool(torch.isfinite(logits).all())
            else Outcome("worse", "predictions that are no numbers")
        )
