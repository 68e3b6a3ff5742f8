"""Mutated configurations: options of every kind with values of every kind, as arguments and as YAML."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import yaml
from campaigns.campaign import Campaign, Outcome, command_line
from lit_options import leaves, parser

BASES: list[list[str]] = [
    ["--model=GFL", "--data=DNC", "--data.num_clients=50", "--data.num_features=5", "--model.encoder.hidden=[4]"],
    ["--model=GFL", "--data=SC", "--data.num_clients=20", "--data.num_features=4", "--data.test_samples=3"],
    ["--model=GFL", "--data=SNC", "--data.num_clients=40", "--data.num_features=4", "--data.samples_per_client=3"],
    ["--model=GFL", "--data=KarateClub", "--model.aggregator=SGC", "--model.server=FedAdam"],
    ["--model=GFL", "--data=KarateClub", "--model.protection.hidden.std=1", "--model.protection.hidden.clip=1"],
    ["--model=Central", "--data=DNC", "--data.num_clients=50", "--data.num_features=5"],
    ["--model=LocalMLPs", "--data=SC", "--data.num_clients=20", "--data.num_features=4", "--data.test_samples=3"],
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
    ),
    *({"class_path": "torch.optim.lr_scheduler.StepLR", "init_args": {"step_size": 0}},),
    *({"class_path": "torch.optim.lr_scheduler.OneCycleLR", "init_args": {"max_lr": 1, "total_steps": 1}},),
    *([{"class_path": "EarlyStopping", "init_args": {"monitor": "nothing"}}],),
    *([{"class_path": "ModelCheckpoint", "init_args": {"monitor": "nothing", "every_n_train_steps": 1}}],),
    *([{"class_path": "callbacks.PrivacyBudget", "init_args": {"max_epsilon": 1.0}}],),
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
    ],
    list: [[], [1], [4, 4], [0], [2**40], ["a"], None],
    dict: ["SGC", "Identity", "LearnablePolynomial", "FedAdam", "Momentum", "GCN", "GAT", "GraphSAGE", "MLP", {}, None],
}
ENDLESS = ("trainer.max_steps", "trainer.max_time", "trainer.limit_train_batches", "trainer.fast_dev_run")
LOCAL = ("trainer.logger", "trainer.model_registry")  # loggers of services that would wait for a network


@dataclass
class Configurations(Campaign):
    """Bases with one to three options mutated."""

    def __post_init__(self) -> None:
        self.name = "mutated configurations"
        self._options: dict[int, dict[str, Any]] = {}

    def options(self, base: int) -> dict[str, Any]:
        """Every option of a base, as the command line names them, with its value."""
        if base not in self._options:
            config = parser().parse_args(["fit", *BASES[base]]).fit.as_dict()
            found = {
                f"{key}.{one}": _at(config[key]["init_args"], one)
                for key in ("model", "data")
                for one in leaves(config[key]["init_args"])
            }
            trainer = {f"trainer.{name}": value for name, value in config["trainer"].items()}
            self._options[base] = found | found | trainer | {"model": {}, "data": {}, "ckpt_path": ""}
        return self._options[base]

    def run(self, draw: random.Random) -> Outcome:
        """One case."""
        number = draw.randrange(len(BASES))
        options = self.options(number)
        changes = {}
        for _ in range(draw.randint(1, 3)):
            name = draw.choice([one for one in options if draw.random() < (0.1 if one.startswith("trainer") else 1)])
            fitting = OF_TYPE.get(type(options[name]), VALUES)
            changes[name] = draw.choice(fitting if draw.random() < 0.8 else VALUES)
        for name in ENDLESS:
            if isinstance(changes.get(name), (int, float)) and not isinstance(changes[name], bool):
                changes[name] = draw.choice([-1, 0, 1, 2])
        changes = {name: value for name, value in changes.items() if name not in LOCAL}
        base = [*BASES[number], *QUIET]
        if "trainer.max_steps" not in changes:
            base.append("--trainer.max_steps=3")
        if draw.random() < 0.5:
            return command_line("fit", *base, *(f"--{name}={_argument(value)}" for name, value in changes.items()))
        with open("c.yaml", "w", encoding="utf-8") as stream:
            yaml.safe_dump(self.nested(number, changes), stream)
        return command_line("fit", "--config=c.yaml", *QUIET)

    def nested(self, base: int, changes: dict[str, Any]) -> dict[str, Any]:
        """The configuration of a base as a file has it, with changes."""
        whole = yaml.safe_load(parser().dump(parser().parse_args(["fit", *BASES[base]]), skip_validation=True))["fit"]
        kept = {key: whole[key] for key in ("model", "data")} | {"trainer": {"max_steps": 3}}
        for name, value in changes.items():
            *path, last = name.split(".")
            place: Any = kept
            for step in path:
                inner = place.setdefault(step, {})
                place = inner.get("init_args", inner) if isinstance(inner, dict) else place
            place[last] = value
        return kept


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
