"""Random tables: CSV text with the mistakes that people and programs make."""

from __future__ import annotations

import csv
import io
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from campaigns.campaign import Campaign, Outcome
from table_builders import clinics

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.losses.huber import Huber
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.graphs.tables.public import PublicColumns
from gfl_lightning.models.encoders.mlp import MLP

CELLS = [
    *(
        "",
        " ",
        "NA",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "1e30",
        "0",
        "-1",
        "1.0",
        "1,5",
        "12 %",
        "2024-01-31",
        "31/01/2024",
    ),
    *("ill", " ill", "well ", "Ill", "=1+1", "+cmd|' /C calc'!A0", "@x", "-x", '"', "a\nb", "ä", "\u202e", "x" * 2000),
    *("true", "None", "clinic 1", "clinic 99", "train", "test", "val", "later", "0x10", "1_000", "١٢", "\x00", "p1"),
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"task": "snc"},
    {"task": "dnc"},
    {"missing": "indicator"},
    {"missing": "refuse"},
    {"scaling": "per_client"},
    {"scaling": "none"},
    {"categorical": ["age"]},
    {"numeric": ["age", "marker"]},
    {"features": ["age"]},
    {"fractions": [0.5, 0.5, 0.0]},
    {"fractions": [1.0, 0.0, 0.0]},
    {"class_weights": "balanced"},
    {"separator": ";"},
    {"separator": "\t"},
    {"separator": "\\"},
    {"separator": '"'},
    {"separator": "\n"},
    {"separator": " "},
    {"max_categories": 2},
    {"weight": "w"},
    {"label": "ward"},
    {"id": "age"},
    {"split_by": "age"},
    {"split_by": "day", "fractions": [0.4, 0.3, 0.3]},
    {"label": "age", "loss": SquaredError()},
    {"label": "marker", "loss": Huber()},
    {"label": "size", "loss": Poisson()},
    {"features": ["age"], "public": PublicColumns({"age": [0, 120]}, {}, ["ill", "well"])},
    *({"edges": None, "clients": "c.csv", "neighbours": k} for k in (1, 2, 2, 50)),
    {"edges": None, "clients": "c.csv", "neighbours": 2, "near": ["size"], "distance": "plane"},
    {"edges": None, "clients": "c.csv", "neighbours": 2, "near": ["north", "east"], "distance": "globe"},
    {"clients": "c.csv"},
    {"clients": "c.csv", "client_features": ["size", "town"]},
]


def text_of(rows: list[list[str]], draw: random.Random) -> bytes:
    """A CSV file, now and then badly written."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator=draw.choice(["\n", "\r\n"])).writerows(rows)
    text = stream.getvalue()
    if draw.random() < 0.05:
        text = text.replace('"', "", 1)
    if draw.random() < 0.05:
        place = draw.randrange(len(text))
        text = text[:place] + draw.choice(['"', ",", "\n", ";", "\x00"]) + text[place:]
    return text.encode(draw.choice(["utf-8"] * 27 + ["utf-8-sig", "utf-16", "latin-1"]), "replace")


def spoiled(rows: list[list[str]], draw: random.Random) -> list[list[str]]:
    """Rows with some cells, rows or columns changed."""
    rows = [list(row) for row in rows]
    for _ in range(draw.choice([0, 0, 0, 1, 1, 2])):
        row = draw.choice(rows[1:] or rows)
        what = draw.random()
        if what < 0.55 and row:
            row[draw.randrange(len(row))] = draw.choice(CELLS)
        elif what < 0.65 and row:
            del row[draw.randrange(len(row)) :]
        elif what < 0.7:
            row.append(draw.choice(CELLS))
        elif what < 0.75:
            rows.append(list(row))
        elif what < 0.8:
            rows[0][draw.randrange(len(rows[0]))] = draw.choice([*CELLS, "label", "Weight", "split"])
        elif what < 0.9:
            place, cell = draw.randrange(len(rows[0])), draw.choice(CELLS)
            rows[1:] = [[*one[:place], cell, *one[place + 1 :]] for one in rows[1:]]
        elif what < 0.95:
            rows[:] = rows[: draw.randrange(len(rows) + 1)]
        else:
            draw.shuffle(rows)
        rows = rows or [[""]]
    return rows


def write_drawn(draw: random.Random) -> str:
    """Write tables of a few clinics, spoiled, into the current folder; their task."""
    task, *tables = drawn(draw)
    for name, rows in zip(("s.csv", "e.csv", "c.csv"), tables, strict=True):
        Path(name).write_bytes(text_of(rows, draw))
    return task


def tables_of(options: dict[str, Any], **others: Any) -> ClientTables:
    """The tables in the current folder."""
    return ClientTables("s.csv", **{"edges": "e.csv", **options, **others})


def accepted_short(data: ClientTables) -> bool:
    """Whether one of the files that were taken has a short row."""
    named = (data.samples, data.edges, data.clients)
    return any(short(Path(name), data.settings.separator) for name in named if name is not None)


def drawn(draw: random.Random) -> tuple[str, list[list[str]], list[list[str]], list[list[str]]]:
    """Tables of samples, edges and clients of a few clinics, spoiled."""
    task = draw.choice(["sc", "sc", "snc", "dnc"])
    samples, edges = clinics(draw.choice([4, 8, 12]), draw.choice([3, 6]), task, draw.randrange(5))
    if draw.random() < 0.3:
        edges["weight"] = "1.5"
    if draw.random() < 0.2:
        samples["split"] = [draw.choice(["train", "val", "test"]) for _ in range(len(samples))]
    if draw.random() < 0.2:
        samples["day"] = [f"2024-01-{draw.randint(1, 28):02}" for _ in range(len(samples))]
    names = list(dict.fromkeys(samples["client"]))
    clients = pd.DataFrame({"client": names, "size": range(len(names)), "town": ["X", "Y"] * (len(names) // 2)})
    clients = clients.assign(north=[50.0 + draw.random() for _ in names], east=[8.0 + draw.random() for _ in names])
    tables = []
    for frame in (samples, edges, clients):
        rows = [list(frame.columns), *([str(cell) for cell in row] for row in frame.to_numpy().tolist())]
        tables.append(spoiled(rows, draw))
    return task, tables[0], tables[1], tables[2]


def short(file: Path, separator: str) -> bool:
    """Whether a row has fewer cells than the header, by Python's own reader."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = [row for row in csv.reader(stream, delimiter=separator) if row]
    except (csv.Error, UnicodeError):
        return False
    return any(len(row) < len(rows[0]) for row in rows)


@dataclass
class Tables(Campaign):
    """Tables that are trained on for a round, or refused."""

    def __post_init__(self) -> None:
        self.name = "random tables"

    def run(self, draw: random.Random) -> Outcome:
        """One case."""
        task = write_drawn(draw)
        options = {
            "task": task if draw.random() < 0.9 else draw.choice(["sc", "snc", "dnc"]),
            **(draw.choice(OPTIONS) if draw.random() < 0.4 else {}),
        }
        data = tables_of(options)
        federation = Federation(data.graph, MLP((4,)), local=LocalTraining(0.01, 1))
        state, _ = federation.round(federation.start())
        if accepted_short(data):
            return Outcome("worse", "a short row was accepted")
        finite = all(bool(torch.isfinite(weight).all()) for weight in state.weights.values())
        return Outcome("ran") if finite else Outcome("worse", "weights that are not finite")
