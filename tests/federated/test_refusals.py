"""What a federation refuses, and in which words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from graph_builders import random_clients

from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import DivergedError, Federation
from gfl_lightning.federated.options import LocalTraining, Participation, Server
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.encoder import SizedEncoder

SMALL = Encoder(6, 3, (5,))

REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"local": {"steps": 0}}, r"steps \(I\) must be at least 1, got 0"),
    ({"local": {"lr": 0.0}}, "lr must be positive and finite, got 0.0"),
    ({"local": {"lr": float("nan")}}, "lr must be positive and finite, got nan"),
    ({"local": {"batch_size": 0}}, "batch_size must be at least 1, got 0"),
    ({"local": {"momentum": 1.0}}, r"momentum must lie in \[0, 1\), got 1.0"),
    ({"local": {"weight_decay": -1.0}}, "weight_decay must be at least 0, got -1.0"),
    ({"local": {"proximal": -1.0}}, "proximal must be at least 0, got -1.0"),
    ({"participation": {"train": 0.0}}, r"train must be a fraction in \(0, 1\], got 0.0"),
    ({"participation": {"share": 0}}, "share must be a number of clients of at least 1, got 0"),
    ({"server": {"weighting": "size"}}, "weighting must be one of uniform, samples, got 'size'"),
    ({"server": {"optimizer": "sgd"}}, "optimizer must be one of average, momentum, adam, got 'sgd'"),
    ({"server": {"lr": -1.0}}, "server lr must be positive and finite, got -1.0"),
    ({"server": {"tau": 0.0}}, "tau must be positive, got 0.0"),
    ({"estimator": "v2"}, "estimator must be one of compensated, v1, exact, got 'v2'"),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"encoder": Encoder(7, 3)}, r"encoder must take 6 features to 3 classes, got \(7, 3\)"),
    ({"estimator": "exact", "participation": {"share": 0.5}}, "share must be 1.0 for the exact estimator.*, got 0.5"),
    ({"protocol": "wire"}, "protocol must be one of jacobian, gram, got 'wire'"),
    (
        {"protocol": "gram", "encoder": Encoder(6, 3, bias=True)},
        "protocol must be jacobian unless the encoder is two-layer ReLU without bias, got 'gram'",
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
    kinds = {"local": LocalTraining, "participation": Participation, "server": Server}
    with pytest.raises(InputError, match=sentence):
        Federation(
            random_clients("dnc"),
            **{"encoder": SMALL} | {k: kinds[k](**v) if k in kinds else v for k, v in options.items()},
        )


def test_aggregators_and_encoders_refuse_what_they_cannot_be() -> None:
    with pytest.raises(InputError, match=r"alpha must lie in \(0, 1\], got 0"):
        APPNP(alpha=0)
    with pytest.raises(InputError, match="M must be at least 1, got 0"):
        LearnablePolynomial(M=0)
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        SGC(0)
    with pytest.raises(InputError, match=r"activation must be one of relu, .*, got 'swish'"):
        Encoder(3, 2, activation="swish")
    with pytest.raises(InputError, match=r"hidden must hold widths of at least 1, got \(0,\)"):
        Encoder(3, 2, hidden=(0,))


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
    for lr in (-1.0, float("nan")):
        with pytest.raises(InputError, match=f"lr must be positive and finite, got {lr}"):
            federation.round(federation.start(), lr=lr)
    server = Server(optimizer="momentum", lr=3e38)
    wild = Federation(random_clients("dnc", dtype=torch.float32), SMALL, local=LocalTraining(50, 1), server=server)
    start = wild.start()
    with pytest.raises(
        DivergedError, match=r"server lr must be small enough for finite weights, got 3e\+38: in round 1"
    ):
        wild.round(start)


def test_weights_are_checked() -> None:
    federation = Federation(random_clients("dnc"), SMALL)
    weights = federation.start().weights
    with pytest.raises(InputError, match="weights must be finite, got 'non-finite entries in W2'"):
        federation.start({**weights, "W2": weights["W2"] * torch.nan})
    with pytest.raises(InputError, match="weights must have the shapes"):
        federation.start({"W1": weights["W1"]})
