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
import yaml  # type: ignore[import-untyped]
from jsonargparse import ArgumentParser
from matplotlib.figure import Figure

from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.local_mlps import LocalMLPs
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.reports.client_report import client_scores
from gfl_lightning.reports.style import BLUE, GREY, ORANGE, VERMILLION, single

HERE = Path(__file__).parent
METHODS = {"graph": "graph federated", "random": "on random edges", "fedavg": "FedAvg", "isolated": "isolated"}
STYLES = {"graph": (BLUE, "o"), "random": (GREY, "D"), "fedavg": (ORANGE, "s"), "isolated": (VERMILLION, "^")}
MODELS = {"GFL": GFL, "LocalMLPs": LocalMLPs}
GROUPS = ("joins, no labels", "6 to 14 records", "30 to 60 records", "150 to 400 records")


@dataclass(frozen=True)
class Method:
    """A configuration of this folder; ``random`` is graph.yaml on shuffled referrals."""

    name: str

    def run(self, network: make_network.Network, folder: Path, rounds: int | None = None) -> pd.DataFrame:
        """Train on a network, for the configuration's rounds or others; each hospital's accuracy in the next year."""
        file = "graph" if self.name == "random" else self.name
        config = yaml.safe_load((HERE / f"{file}.yaml").read_text())
        options = config["data"]["init_args"] | {
            "samples": str(folder / "patients.csv"),
            "edges": str(folder / "referrals.csv"),
        }
        data = ClientTables(**options)
        model = _model(config["model"], data)
        trainer = _trainer(config["trainer"]["max_steps"] if rounds is None else rounds)
        trainer.fit(model, data)
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


def shuffled(network: make_network.Network, seed: int) -> make_network.Network:
    """The network with other hospitals at the ends of its referrals."""
    names = sorted(network.patients["hospital"].unique())
    other = dict(zip(names, np.random.default_rng(seed).permutation(names), strict=True))
    referrals, joined = (
        table.assign(**{end: table[end].replace(other) for end in ("hospital", "refers_to")})
        for table in (network.referrals, network.joined_referrals)
    )
    return replace(network, referrals=referrals, joined_referrals=joined)


def _model(config: dict[str, Any], data: ClientTables) -> RoundModule:
    """The model of a configuration, for the sizes of the data."""
    graph = data.graph
    sizes = {"num_features": graph.num_features, "num_classes": graph.num_classes}
    if config["class_path"] == "LocalMLPs":
        sizes["num_clients"] = graph.num_clients
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(MODELS[config["class_path"]], "model")
    model: RoundModule = parser.instantiate(parser.parse_object({"model": config["init_args"] | sizes})).model
    return model


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
    labelled = (data.graph.counts() - data.graph.counts(data.graph.mask(Split.TEST))).tolist()
    records = dict(zip(data.names.clients, labelled, strict=True))
    return found.assign(records=found["client"].map(records))


def figure(table: pd.DataFrame) -> Figure:
    """Every hospital as a point, and the mean of each group with its standard error."""
    drawn, axes = single(7.6, 4.2)
    spread = np.random.default_rng(0)
    for shift, (name, (colour, mark)) in zip((-0.3, -0.1, 0.1, 0.3), STYLES.items(), strict=True):
        own = table[table["method"] == name]
        at = own["group"] + shift
        axes.scatter(at + spread.uniform(-0.05, 0.05, len(own)), 100 * own["accuracy"], s=6, color=colour, alpha=0.25)
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


def main(file: str, networks: int, rounds: int | None = None) -> None:
    """Run everything, print the means and draw the figure; ``rounds`` replaces those of the configurations."""
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
                tables.append(Method(name).run(own, Path(scratch), rounds).assign(method=name, seed=seed))
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
