"""Mutated configurations: options of every kind with values of every kind, as arguments and as YAML."""

from __future__ import annotations

import contextlib
import copy
import random
import shutil
from dataclasses import dataclass
from typing import Any

import yaml
from campaigns.campaign import Campaign, Outcome, command_line
from lit_options import leaves, parser
from table_builders import clinics

PRIVATE = ("hidden", "jacobian", "update")
SMALL = ["--data.num_clients=20", "--data.num_features=4"]
ROWS = ["--data=SC", *SMALL, "--data.test_samples=3"]
NODES = ["--data=DNC", "--data.num_clients=50", "--data.num_features=5"]
RANDOMISED = '{"class_path": "gfl_lightning.PrivUnit", "init_args": {"dimensions": 2}}'
TABLES = ["--data=ClientTables", "--data.samples=s.csv", "--data.edges=e.csv", "--data.task=sc"]
NEAREST = [
    "--data=ClientTables",
    "--data.samples=s.csv",
    "--data.clients=c.csv",
    "--data.neighbours=2",
    "--data.task=sc",
]
PUBLIC = ['--data.public={"ranges": {"age": [0, 120]}, "classes": ["ill", "well"]}', "--data.features=[age]"]
WORDS = ["--data=Citations", "--data.num_clients=200", "--data.num_words=20", "--data.num_val=20", "--data.num_test=40"]
ONCE = ["--model.records=RandomisedOnce", f"--model.records.features={RANDOMISED}", "--model.encoder=Linear"]
BUDGET = [
    "--model.guarantee.max_epsilon=50",
    "--model.guarantee.ledger=spent",
    "--model.guarantee.calibrate=true",
]
NOISE = [f"--model.protection.{one}.{name}=1" for one in PRIVATE for name in ("std", "clip")]
MIX = ["--model.personal=OwnLevel", "--model.mix.fedavg=true", "--model.mix.steps=[2]"]
BASES: list[list[str]] = [
    ["--model=GFL", *NODES, "--model.encoder.hidden=[4]"],
    ["--model=GFL", *ROWS],
    ["--model=GFL", "--data=SNC", "--data.num_clients=40", "--data.num_features=4", "--data.samples_per_client=3"],
    ["--model=GFL", "--data=KarateClub", "--model.aggregator=SGC", "--model.server=FedAdam"],
    ["--model=GFL", "--data=KarateClub", "--model.protection.hidden.std=1", "--model.protection.hidden.clip=1"],
    ["--model=GFL", *ROWS, *MIX],
    ["--model=GFL", *ROWS, "--model.personal=Gate", "--model.mix.steps=[1, 3]", "--model.encoder=Linear"],
    ["--model=GFL", *NODES, "--model.records=SharedLabels", "--model.personal=OwnSlopes"],
    ["--model=GFL", *NODES, "--model.aggregator=ChosenAPPNP", *ONCE],
    ["--model=GFL", *ROWS, *NOISE, *BUDGET],
    ["--model=GFL", *WORDS, "--data.labelled=3", "--model.aggregator.M=3"],
    ["--model=GFL", *TABLES, "--model.personal=OwnLevel", "--data.loss=CrossEntropy"],
    ["--model=GFL", *NEAREST, "--data.task=sc", "--data.label=age", "--data.loss=SquaredError", "--data.near=[size]"],
    ["--model=GFL", *TABLES, *PUBLIC],
    ["--model=Central", *NODES],
    ["--model=LocalMLPs", *ROWS],
]
QUIET = ["--trainer.enable_progress_bar=false", "--trainer.accelerator=cpu"]
VALUES: list[Any] = [
    *(0, 1, -1, 2, 3, 7, 2**31, 2**62, 10**30, -(2**63)),
    *(0.0, 0.5, 1.0, -0.5, 1.5, 1e-300, 1e300, float("nan"), float("inf"), float("-inf")),
    *(
        True,
        False,
        None,
        "",
        "abc",
        "none",
        "1e-3",
        "ä",
        "a b",
        "../elsewhere",
        "/proc/nothing",
        "/dev/full",
        "x" * 300,
    ),
    *([], [1], [0], [1, 2], ["a"], [None], [[1]], {}, {"a": 1}, {"class_path": "Nothing"}, {"class_path": "os.getcwd"}),
    *(
        "SGC",
        "Identity",
        "FedAdam",
        "EarlyStopping",
        "torch.optim.lr_scheduler.StepLR",
        "GCN",
        "simple",
        "callbacks.DPSGD",
        "callbacks.RandomiseOnce",
        "OwnLevel",
        "SharedLabels",
        "ChosenAPPNP",
        "s.csv",
    ),
    *({"class_path": "torch.optim.lr_scheduler.StepLR", "init_args": {"step_size": 0}},),
    *({"class_path": "torch.optim.lr_scheduler.OneCycleLR", "init_args": {"max_lr": 1, "total_steps": 1}},),
    *([{"class_path": "EarlyStopping", "init_args": {"monitor": "nothing"}}],),
    *([{"class_path": "ModelCheckpoint", "init_args": {"monitor": "nothing", "every_n_train_steps": 1}}],),
    *([{"class_path": "callbacks.PrivacyBudget", "init_args": {"max_epsilon": 1.0}}],),
    *([{"class_path": "callbacks.PrivacyBudget", "init_args": {"max_epsilon": one}} for one in (0.5, 50.0)],),
    *([{"class_path": "callbacks.RandomiseOnce", "init_args": {"epsilon": 1.0}}],),
    *([{"class_path": "WeightAveraging"}, {"class_path": "EarlyStopping", "init_args": {"monitor": "val_loss"}}],),
    *({"age": [0, 1]}, {"ranges": {"age": [0, 1]}}, {"ill": 2.0, "well": 1.0}, ["age", "ward"], [0.5, 0.5, 0.0]),
]
OF_TYPE: dict[type, list[Any]] = {
    bool: [True, False],
    int: [0, 1, -1, 2, 3, 5, 7, 20, 100, 2**31, 2**62, 10**30],
    float: [0.0, 0.1, 0.5, 1.0, 2, 1e-3, 1e-12, 1e-300, 1e3, 1e5, 1e19, 1e300, -0.5, float("nan"), float("inf")],
    str: [
        "relu",
        "tanh",
        "elu",
        "v1",
        "exact",
        "gram",
        "general",
        "primal",
        "dual",
        "samples",
        "sample",
        "prv",
        "zero_out",
        "",
        *("age", "ward", "label", "client", "sc", "balanced", "globe", "rows", "indicator", "s.csv", "c.csv"),
    ],
    list: [[], [1], [4, 4], [0], [2**40], ["a"], None],
    dict: [
        *("SGC", "Identity", "LearnablePolynomial", "FedAdam", "Momentum", "GCN", "GAT", "GraphSAGE", "MLP", {}, None),
        *("OwnLevel", "OwnSlopes", "Gate", "Shared", "ChosenAPPNP", "Linear", "SharedLabels", "Rotated", "AsTheyAre"),
        *("RandomisedOnce", "Subset", "MultiBit", "GaussianDirection", "Withheld", "Huber", "Poisson", "CrossEntropy"),
    ],
}
ENDLESS = ("trainer.max_steps", "trainer.max_time", "trainer.limit_train_batches", "trainer.fast_dev_run")
LOCAL = ("trainer.logger", "trainer.model_registry")  # loggers of services that would wait for a network


@dataclass
class Configurations(Campaign):
    """Bases with one to three options mutated."""

    def __post_init__(self) -> None:
        self.name = "mutated configurations"

    def prepare(self) -> None:
        """Every option of each base, and each base as a file has it: parsers are slow, and cases many."""
        samples, edges = clinics(6, 5)
        samples.to_csv(self.folder / "s.csv", index=False)
        edges.to_csv(self.folder / "e.csv", index=False)
        with (self.folder / "c.csv").open("w", encoding="utf-8") as stream:
            stream.writelines(["client,size,town\n", *(f"clinic {k},{k * k},{'XY'[k % 2]}\n" for k in range(6))])
        with contextlib.chdir(self.folder):
            self.options = [_options(base) for base in BASES]
            self.files = [_file(base) for base in BASES]

    def run(self, draw: random.Random) -> Outcome:
        """One case."""
        number = draw.randrange(len(BASES))
        for name in ("s.csv", "e.csv", "c.csv"):
            shutil.copy(self.folder / name, name)
        options = self.options[number]
        changes = {}
        for _ in range(draw.choice([1, 1, 2, 3])):
            name = draw.choice([one for one in options if draw.random() < (0.1 if one.startswith("trainer") else 1)])
            fitting = OF_TYPE.get(type(options[name]), VALUES)
            near = _near(options[name]) if draw.random() < 0.4 else []
            changes[name] = draw.choice(near or (fitting if draw.random() < 0.8 else VALUES))
        for name in ENDLESS:
            if isinstance(changes.get(name), (int, float)) and not isinstance(changes[name], bool):
                changes[name] = draw.choice([-1, 0, 1, 2])
        changes = {name: value for name, value in changes.items() if name not in LOCAL}
        quiet = QUIET if draw.random() < 0.1 else [*QUIET, "--report=false"]  # figures take longer than all the rest
        base = [*BASES[number], *quiet]
        if "trainer.max_steps" not in changes:
            base.append("--trainer.max_steps=3")
        if draw.random() < 0.5:
            return command_line("fit", *base, *(f"--{name}={_argument(value)}" for name, value in changes.items()))
        with open("c.yaml", "w", encoding="utf-8") as stream:
            yaml.safe_dump(self.nested(number, changes), stream)
        return command_line("fit", "--config=c.yaml", *quiet)

    def nested(self, base: int, changes: dict[str, Any]) -> dict[str, Any]:
        """The configuration of a base as a file has it, with changes."""
        kept = copy.deepcopy(self.files[base])
        for name, value in changes.items():
            *path, last = name.split(".")
            place: Any = kept
            for step in path:
                inner = place.setdefault(step, {})
                place = inner.get("init_args", inner) if isinstance(inner, dict) else place
            place[last] = value
        return kept


def _options(base: list[str]) -> dict[str, Any]:
    """Every option of a base, as the command line names them, with its value."""
    config = parser().parse_args(["fit", *base]).fit.as_dict()
    found = {
        f"{key}.{one}": _at(config[key]["init_args"], one)
        for key in ("model", "data")
        for one in leaves(config[key]["init_args"])
    }
    trainer = {f"trainer.{name}": value for name, value in config["trainer"].items()}
    return found | trainer | {"model": {}, "data": {}, "ckpt_path": ""}


def _file(base: list[str]) -> dict[str, Any]:
    """A base as a configuration file has it."""
    whole = yaml.safe_load(parser().dump(parser().parse_args(["fit", *base]), skip_validation=True))["fit"]
    return {key: whole[key] for key in ("model", "data")} | {"trainer": {"max_steps": 3}}


def _near(value: Any) -> list[Any]:
    """Numbers and truths not far from one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value, value // 2]
    return [0.5 * value, 2 * value, value + 0.1] if isinstance(value, float) else []


def _at(options: Any, name: str) -> Any:
    """The value of an option, by its name on the command line."""
    for step in name.split("."):
        options = options.get("init_args", options)[step]
    return options


def _argument(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else yaml.safe_dump(value, default_flow_style=True).strip().removesuffix("\n...")
    )
