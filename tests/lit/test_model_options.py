"""Every option of a model changes what comes of a few rounds: a new one must find its place in these tables."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from lit_options import BASES, NODES, Args, kinds_of, options_of, parser, refusal

from gfl_lightning.baselines.networks.architecture import Architecture
from gfl_lightning.federated.server.optimizer import ServerOptimizer
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.parsing import LINKED
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.encoders.encoder import Encoder
from gfl_lightning.models.personal.personal import Personal
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism

QUIET: dict[str, Any] = {
    "max_steps": 3,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
}

NOISE = [f"--model.protection.{kind}.{name}=1" for kind in ("hidden", "jacobian", "update") for name in ("std", "clip")]
SAMPLES = [
    "--model.estimator=v1",
    "--model.protection.hidden.std=1",
    "--model.protection.hidden.clip=1",
    "--model.protection.steps.clip=1",
    "--model.protection.steps.noise_multiplier=2",
    "--model.protection.unit=sample",
    "--model.guarantee.neighbours=zero_out",
    "--model.local.batch_size=1",
    "--data=SC",
    "--data.num_features=5",
]
GFL_OPTIONS: dict[str, tuple[Args, str]] = {
    "records": ([], "SharedLabels"),
    "encoder": ([], "lit_types.Halved"),
    "encoder.hidden": ([], "[4]"),
    "encoder.activation": ([], "tanh"),
    "encoder.bias": ([], "true"),
    "aggregator": ([], "Identity"),
    "aggregator.alpha": ([], "0.5"),
    "aggregator.M": ([], "2"),
    "estimator": ([], "v1"),
    "local.lr": ([], "0.1"),
    "local.steps": ([], "3"),
    "local.batch_size": ([], "1"),
    "local.momentum": ([], "0.5"),
    "local.weight_decay": ([], "0.1"),
    "local.proximal": ([], "1"),
    "personal": ([], "OwnLevel"),
    "server": ([], "Momentum"),
    "weighting": ([], "samples"),
    "participation.train": ([], "0.5"),
    "participation.share": ([], "0.5"),
    **{f"protection.{kind}": ([], "lit_types.Uniform") for kind in ("hidden", "jacobian", "update")},
    **{f"protection.{kind}.std": ([], "0.5") for kind in ("hidden", "jacobian", "update")},
    **{f"protection.{kind}.clip": ([], "0.001") for kind in ("hidden", "jacobian", "update")},
    "protection.steps.clip": ([], "0.01"),
    "protection.steps.noise_multiplier": (["--model.protection.steps.clip=1"], "2"),
    "protection.unit": (["--model.protection.hidden.clip=0.1"], "sample"),
    "guarantee.delta": (NOISE, "1e-3"),
    "guarantee.neighbours": (NOISE, "zero_out"),
    "guarantee.accountant": (SAMPLES, "prv"),
    "guarantee.max_epsilon": (NOISE, "30"),
    "guarantee.calibrate": ([*NOISE, "--model.guarantee.max_epsilon=30"], "true"),
    "guarantee.selection": (NOISE, "exact"),
    "protection.validation": ([], "lit_types.Uniform"),
    "protection.validation.std": ([*NOISE, "--model.protection.validation.clip=1"], "1"),
    "protection.validation.clip": ([*NOISE, "--model.protection.validation.std=1"], "1"),
    "protocol": ([], "gram"),
    "path": ([], "general"),
    "seed": ([], "1"),
    "noise_seed": (["--model.protection.hidden.std=0.5"], "1"),
    "lr_scheduler": ([], "torch.optim.lr_scheduler.ConstantLR"),
}
PARTS: dict[str, tuple[type, dict[str, dict[str, str]]]] = {
    "records": (
        Records,
        {
            "AsTheyAre": {},
            "SharedLabels": {"scale": "0.5"},
            "Rotated": {"secret": "1"},
            "RandomisedOnce": {
                "epsilon": "1",
                "features": '{"class_path": "gfl_lightning.Subset"}',
                "features.dimensions": "2",
                "labels": '{"class_path": "lit_types.Loud"}',
                "label_share": "0.5",
                "unit": "sample",
                "pooled": "true",
                "share_labels": "1",
            },
        },
    ),
    "encoder": (Encoder, {"MLP": {"hidden": "[4]", "activation": "tanh", "bias": "true"}, "Linear": {}}),
    "aggregator": (
        Aggregator,
        {
            "APPNP": {"alpha": "0.5", "M": "2"},
            "ChosenAPPNP": {"alphas": "[0.5]", "depths": "[1]"},
            "SGC": {"k": "1"},
            "Identity": {},
            "LearnablePolynomial": {"alpha": "0.5", "M": "2"},
        },
    ),
    "personal": (
        Personal,
        {
            "Shared": {},
            "OwnLevel": {"strength": "1"},
            "OwnSlopes": {"level": "1", "slopes": "1"},
            "Gate": {"strength": "9", "level": "1"},
        },
    ),
    "server": (
        ServerOptimizer,
        {
            "Average": {},
            "Momentum": {"lr": "0.5", "beta": "0.5"},
            "FedAdam": {"lr": "0.5", "beta1": "0.5", "beta2": "0.5", "tau": "0.5"},
        },
    ),
    "protection.hidden": (Mechanism, {"Gaussian": {"std": "0.5", "clip": "0.001"}}),
    "architecture": (
        Architecture,
        {
            "APPNPNet": {"hidden": "8", "alpha": "0.5", "M": "2"},
            "GCN": {"hidden": "8"},
            "GAT": {"hidden": "8"},
            "GraphSAGE": {"hidden": "8"},
        },
    ),
}
WHOLE = {
    "records.features.dimensions": '--model.records.features={"class_path": "gfl_lightning.PrivUnit", "init_args": '
    '{"dimensions": 2}}'
}  # the command line names a part within a part whole
FITTING = {
    "records.features": NODES,
    "records.pooled": ["--data=SNC", "--data.num_clients=20", "--data.num_features=5"],
}
CENTRAL_OPTIONS: dict[str, tuple[Args, str]] = {
    "architecture": ([], "GCN"),
    "architecture.hidden": ([], "4"),
    "architecture.alpha": ([], "0.5"),
    "architecture.M": ([], "2"),
    "lr": ([], "0.1"),
    "seed": ([], "1"),
    "lr_scheduler": ([], "torch.optim.lr_scheduler.ConstantLR"),
}
LOCAL_OPTIONS: dict[str, tuple[Args, str]] = {
    "hidden": ([], "4"),
    "lr": ([], "0.5"),
    "batch_size": ([], "1"),
    "seed": ([], "1"),
    "lr_scheduler": ([], "torch.optim.lr_scheduler.ConstantLR"),
}
ELSEWHERE = {  # tests/callbacks/test_life_cycle.py, tests/lit/test_mix.py
    *("guarantee.pretrained", "guarantee.colluding", "guarantee.ledger"),
    *("mix.fedavg", "mix.steps"),
}
OF_PARTS_ELSEWHERE = {"ChosenAPPNP": {"rounds"}}  # tests/lit/test_chosen_aggregator.py
MODELS = {"GFL": GFL_OPTIONS, "Central": CENTRAL_OPTIONS, "LocalMLPs": LOCAL_OPTIONS}
CASES = [
    *((model, option, context, value) for model, table in MODELS.items() for option, (context, value) in table.items()),
    *(
        (
            "Central" if role == "architecture" else "GFL",
            f"{role}.{option}",
            [f"--model.{role}={kind}", *FITTING.get(f"{role}.{option}", [])],
            value,
        )
        for role, (_, kinds) in PARTS.items()
        for kind, table in kinds.items()
        for option, value in table.items()
    ),
]


@pytest.mark.parametrize("model", BASES)
def test_every_option_of_a_model_has_its_place(model: str) -> None:
    elsewhere = ELSEWHERE if model == "GFL" else set()
    assert options_of("model", *BASES[model]) - set(LINKED) - elsewhere == set(MODELS[model])


@pytest.mark.parametrize("role", PARTS)
def test_every_part_and_its_options_have_their_place(role: str) -> None:
    base, kinds = PARTS[role]
    assert {kind.__name__ for kind in kinds_of(base)} == set(kinds)
    whole = BASES["Central" if role == "architecture" else "GFL"]
    for kind, table in kinds.items():
        found = options_of("model", *whole, f"--model.{role}={kind}")
        own = {one.removeprefix(f"{role}.") for one in found if one.startswith(f"{role}.")}
        assert own - OF_PARTS_ELSEWHERE.get(kind, set()) == set(table)


@cache
def outcome(*args: str) -> Any:
    """What three rounds lead to; the sentence where they are refused."""
    try:
        made = parser().instantiate_classes(parser().parse_args(["fit", *args])).fit
        module: RoundModule = made.model
        FederatedTrainer(**QUIET).fit(module, made.data)
    except Exception as error:
        return refusal(error)
    account = module.privacy
    return {
        "weights": {name: weight.tolist() for name, weight in module.current_weights().items()},
        "metrics": {name: value for name, value in module.round_metrics.items() if not name.startswith("epsilon")},
        "totals": module.totals,
        "privacy": None
        if account is None
        else (
            account.nominal,
            account.epsilon_fellow,
            account.delta,
            account.unit,
            account.accountant,
            account.outside,
        ),
        "path": module.federation.path if isinstance(module, GFL) else None,
    }


@pytest.mark.filterwarnings("ignore:Opacus' PRV accountant")
@pytest.mark.parametrize(("model", "option", "context", "value"), CASES, ids=lambda one: str(one)[:30])
def test_every_option_of_a_model_changes_the_outcome(model: str, option: str, context: Args, value: str) -> None:
    same_noise = ["--model.noise_seed=0"] if model == "GFL" else []
    base = [*BASES[model], *same_noise, *context]
    without = outcome(*base)
    assert isinstance(without, dict), without
    changed = outcome(*base, WHOLE.get(option, f"--model.{option}={value}"))
    assert isinstance(changed, dict), changed
    assert changed != without
