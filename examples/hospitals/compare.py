"""Graph federated, FedAvg and isolated on several networks: ``python examples/hospitals/compare.py FIGURE [NETWORKS]``.

Prints test accuracy by how many labelled records a hospital has, and for a hospital that joins without any, and draws
it. The models and their options are those of graph.yaml, fedavg.yaml and isolated.yaml. A fourth column is the graph
federated model on the same network with the names in its referrals shuffled, so that edges mean nothing.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import make_network
import numpy as np
import pandas as pd
import torch
import yaml
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gfl_lightning.reports.client_report import client_scores
from gfl_lightning.lit.client_tables import ClientTables
from gfl_lightning.reports.figures import BLUE, GREY, ORANGE, STYLE, VERMILLION
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.local_mlps import LocalMLPs
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.rounds import FederatedTrainer

HERE = Path(__file__).parent
METHODS = {"graph": "graph federated", "random": "on random edges", "fedavg": "FedAvg", "isolated": "isolated"}
STYLES = {"graph": (BLUE, "o"), "random": (GREY, "D"), "fedavg": (ORANGE, "s"), "isolated": (VERMILLION, "^")}
GROUPS = ("joins, no labels", "6 to 14 records", "30 to 60 records", "150 to 400 records")


@dataclass(frozen=True)
class Method:
    """A configuration of this folder; ``random`` is graph.yaml on shuffled referrals."""

    name: str

    def run(self, network: make_network.Network, folder: Path) -> pd.DataFrame:
        """Train on a network; accuracy of each hospital in the following year."""
        file = "graph" if self.name == "random" else self.name
        config = yaml.safe_load((HERE / f"{file}.yaml").read_text())
        options = config["data"]["init_args"] | {
            "samples": str(folder / "patients.csv"),
            "edges": str(folder / "referrals.csv"),
        }
        data = ClientTables(**options)
        model = self._model(config["model"], data)
        trainer = _trainer(config["trainer"]["max_steps"])
        trainer.fit(model, datamodule=data)
        model.use_best()
        found = _scores(model, data)
        found["group"] = np.digitize(found["records"], [1, 20, 100])
        if self.name == "isolated":
            return found
        trainer.save_checkpoint(folder / "model.ckpt", weights_only=True)
        later = folder / "later.csv"
        network.joined_patients.to_csv(later, index=False)
        options |= {"samples": str(later), "edges": str(folder / "joined_referrals.csv"), "fractions": [0, 0, 1]}
        joined = _scores(model, ClientTables(**options, encoding=str(folder / "model.ckpt")))
        return pd.concat([found, joined[joined["client"] == joined["client"].max()].assign(group=0)])

    def _model(self, config: dict[str, Any], data: ClientTables) -> RoundModule:
        sizes = {"num_features": data.num_features, "num_classes": data.num_classes}
        if config["class_path"] == "LocalMLPs":
            return LocalMLPs(num_clients=data.num_clients, **sizes, **config["init_args"])
        return GFL(**sizes, **config["init_args"])


def shuffled(network: make_network.Network, seed: int) -> make_network.Network:
    """The network with other hospitals at the ends of its referrals."""
    names = sorted(network.patients["hospital"].unique())
    other = dict(zip(names, np.random.default_rng(seed).permutation(names), strict=True))
    referrals, joined = (
        table.assign(**{end: table[end].replace(other) for end in ("hospital", "refers_to")})
        for table in (network.referrals, network.joined_referrals)
    )
    return replace(network, referrals=referrals, joined_referrals=joined)


def _trainer(rounds: int) -> FederatedTrainer:
    return FederatedTrainer(
        max_steps=rounds,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def _scores(model: RoundModule, data: ClientTables) -> pd.DataFrame:
    model.prepare(data.graph)
    found = client_scores(data.graph, data.names, torch.softmax(model.predict_logits(), -1))
    labelled = (data.graph.counts() - data.graph.counts(data.graph.split == 2)).tolist()
    records = dict(zip(data.names.clients, labelled, strict=True))
    return found.assign(records=found["client"].map(records))


def figure(table: pd.DataFrame) -> Figure:
    """Every hospital as a point, and the mean of each group with its standard error."""
    with rc_context(STYLE):
        drawn = Figure(figsize=(7.6, 4.2), layout="constrained")
        FigureCanvasAgg(drawn)
        axes = drawn.add_subplot()
        spread = np.random.default_rng(0)
        for shift, (name, (colour, mark)) in zip((-0.3, -0.1, 0.1, 0.3), STYLES.items(), strict=True):
            own = table[table["method"] == name]
            at = own["group"] + shift
            axes.scatter(
                at + spread.uniform(-0.05, 0.05, len(own)), 100 * own["accuracy"], s=6, color=colour, alpha=0.25
            )
            groups = own.groupby("group")["accuracy"]
            axes.errorbar(
                groups.mean().index + shift,
                100 * groups.mean(),
                100 * groups.sem(),
                fmt=mark,
                color=colour,
                markeredgecolor="white",
                markersize=8,
                capsize=3,
                label=METHODS[name],
            )
        axes.set_xticks(range(len(GROUPS)), GROUPS)
        axes.grid(axis="x", visible=False)
        axes.set(ylabel="test accuracy of a hospital, %", title="Where the graph helps, and where it does not")
        axes.set_ylim(axes.get_ylim()[0] - 5)  # room for the legend
        axes.legend(loc="lower right", ncols=4)
    return drawn


def main(file: str, networks: int) -> None:
    """Run everything, print the means and draw the figure."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)  # the tensors are small, and threads only wait for each other
    warnings.filterwarnings("ignore", message=".*LeafSpec.*is deprecated")
    tables = []
    for seed in range(networks):
        network = make_network.make(seed)
        for name in METHODS:
            own = shuffled(network, seed) if name == "random" else network
            with tempfile.TemporaryDirectory() as scratch:
                make_network.write(own, Path(scratch))
                tables.append(Method(name).run(own, Path(scratch)).assign(method=name, seed=seed))
        print(f"network {seed + 1} of {networks}", file=sys.stderr)
    table = pd.concat(tables)
    means = table.groupby(["method", "group"])["accuracy"].agg(["mean", "sem", "count"])
    for name, title in METHODS.items():
        for group, row in means.loc[name].iterrows():
            score = f"{100 * row['mean']:.1f} ± {100 * row['sem']:.1f} %"
            print(f"{title:>16}  {GROUPS[group]:<20} {score}  ({row['count']:.0f} hospitals)")
    figure(table).savefig(file)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit("usage: python examples/hospitals/compare.py FIGURE [NETWORKS]")
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10)
