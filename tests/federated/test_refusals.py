"""What a federation refuses, and in which words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from graph_builders import random_clients

from gfl_lightning.checks import InputError
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.federated.server.momentum import Momentum
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.encoder import SizedEncoder
from gfl_lightning.models.encoders.mlp import MLP

SMALL = MLP((5,))

REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"local": {"steps": 0}}, r"steps \(I\) must be at least 1, got 0"),
    ({"local": {"lr": 0.0}}, "lr must be positive and finite, got 0.0"),
    ({"local": {"lr": float("nan")}}, "lr must be positive and finite, got nan"),
    ({"local": {"batch_size": 0}}, "batch_size must be at least 1, got 0"),
    ({"local": {"momentum": 1.0}}, r"momentum must lie in \[0, 1\), got 1.0"),
    ({"local": {"weight_decay": -1.0}}, "weight_decay must be at least 0, got -1.0"),
    ({"local": {"proximal": -1.0}}, "proximal must be at least 0, got -1.0"),
    ({"local": {"proximal": float("inf")}}, "proximal must be at most 1.7e.38, as 32 bits hold no more, got inf"),
    ({"local": {"weight_decay": 1e39}}, "weight_decay must be at most 1.7e.38, as 32 bits hold no more, got 1e"),
    ({"participation": {"train": 0.0}}, r"train must be a fraction in \(0, 1\], got 0.0"),
    ({"participation": {"share": 0}}, "share must be a number of clients of at least 1, got 0"),
    ({"weighting": "size"}, "weighting must be one of uniform, samples, got 'size'"),
    ({"server": {"lr": -1.0}}, "server lr must be positive and finite, got -1.0"),
    ({"server": {"tau": 0.0}}, "tau must be positive, got 0.0"),
    ({"server": {"beta1": 1.0}}, r"beta1 must lie in \[0, 1\), got 1.0"),
    ({"server": {"beta2": -0.1}}, r"beta2 must lie in \[0, 1\), got -0.1"),
    ({"estimator": "v2"}, "estimator must be one of compensated, v1, exact, got 'v2'"),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"estimator": "exact", "participation": {"share": 0.5}}, "share must be 1.0 for the exact estimator.*, got 0.5"),
    ({"protocol": "wire"}, "protocol must be one of jacobian, gram, got 'wire'"),
    (
        {"protocol": "gram", "encoder": MLP(bias=True)},
        "protocol must be jacobian unless the encoder is two-layer ReLU or linear, without bias, got 'gram'",
    ),
    ({"protocol": "gram", "aggregator": LearnablePolynomial()}, "protocol must be jacobian where the aggregator is le"),
    (
        {"protocol": "gram", "local": {"momentum": 0.5}},
        "protocol must be jacobian where clients use more than plain SGD",
    ),
    ({"local": {"steps": 1.5}}, r"steps \(I\) must be a whole number of at least 1, got 1.5"),
    ({"participation": {"train": True}}, "train must be a number of clients of at least 1, got True"),
    ({"protocol": "gram", "estimator": "v1"}, "protocol must be jacobian where the estimator is v1, got 'gram'"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSALS)
def test_refusals(options: dict[str, Any], sentence: str) -> None:
    kinds = {"local": LocalTraining, "participation": Participation, "server": FedAdam}
    with pytest.raises(InputError, match=sentence):
        Federation(
            random_clients("dnc"),
            **{"encoder": SMALL} | {k: kinds[k](**v) if k in kinds else v for k, v in options.items()},
        )


def test_parts_refuse_what_they_cannot_be() -> None:
    with pytest.raises(InputError, match="server lr must be positive and finite, got 0"):
        Momentum(lr=0)
    with pytest.raises(InputError, match=r"beta must lie in \[0, 1\), got 1"):
        Momentum(beta=1)
    with pytest.raises(InputError, match=r"num_features must be at least 1, got 0"):
        SizedEncoder(MLP(), 0, 3)
    with pytest.raises(InputError, match=r"num_classes must be at least 1, got 0"):
        SizedEncoder(MLP(), 6, 0)
    with pytest.raises(InputError, match=r"alpha must lie in \(0, 1\], got 0"):
        APPNP(alpha=0)
    with pytest.raises(InputError, match="M must be at least 1, got 0"):
        LearnablePolynomial(M=0)
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        SGC(0)
    with pytest.raises(InputError, match=r"activation must be one of relu, .*, got 'swish'"):
        MLP(activation="swish")
    with pytest.raises(InputError, match=r"hidden must hold widths of at least 1, got \(0,\)"):
        MLP(hidden=(0,))


def test_data_without_training_samples_or_a_class_is_refused() -> None:
    graph = random_clients("dnc")
    nothing = torch.full_like(graph.split, int(Split.VAL))
    with pytest.raises(InputError, match="graph must have at least one training sample, got ClientGraph"):
        Federation(replace(graph, split=nothing), SMALL)
    no_zero = torch.where(graph.y == 0, nothing, graph.split)
    with pytest.raises(
        InputError, match=r"graph must have a training sample of every class, got 'none of class \[0\]'"
    ):
        Federation(replace(graph, split=no_zero), SMALL)


def test_rates_of_a_round_are_checked_and_the_servers_is_blamed_for_its_own_step() -> None:
    federation = Federation(random_clients("dnc"), SMALL)
    for lr in (-1.0, float("nan"), [0.1]):
        with pytest.raises(InputError, match=re.escape(f"lr must be finite and not negative, got {lr}")):
            federation.round(federation.start(), lr=lr)  # type: ignore[arg-type]
    start = federation.start()
    ended, _ = federation.round(start, lr=0.0)  # as a schedule may end
    for name, weight in start.weights.items():
        torch.testing.assert_close(ended.weights[name], weight)
    server = Momentum(3e38)
    wild = Federation(random_clients("dnc", dtype=torch.float32), SMALL, local=LocalTraining(50, 1), server=server)
    start = wild.start()
    with pytest.raises(
        DivergedError, match=r"server must leave finite weights, got Momentum\(lr=3e\+38, beta=0.9\): in round 1"
    ):
        wild.round(start)


def test_weights_are_checked() -> None:
    federation = Federation(random_clients("dnc"), SMALL)
    weights = federation.start().weights
    with pytest.raises(InputError, match="weights must be finite, got 'non-finite entries in W2'"):
        federation.start({**weights, "W2": weights["W2"] * torch.nan})
    with pytest.raises(InputError, match="weights must have the shapes"):
        federation.start({"W1": weights["W1"]})
