"""Noise that is not Gaussian, on everything that is uploaded: its law, the oracle's trajectory, and training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from graph_builders import nodes, random_clients
from laplace import Laplace
from protected_oracle import protected_trajectory
from scipy import stats
from torch import Tensor

from gfl_lightning.federated.exchange.exchange import exchange
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining, Path
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protection.protected_messages import protected
from gfl_lightning.federated.protocol.messages import JacobianUpload, ModelUpload, RepresentationUpload
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection

B = 0.3
NOISY = Protection(hidden=Laplace(B), jacobian=Laplace(B), update=Laplace(B))
BOUNDED = Protection(hidden=Laplace(0.1, 0.4), jacobian=Laplace(0.05, 0.8), update=Laplace(0.01, 0.1))


def assert_laplace(draws: Iterable[Tensor]) -> None:
    """Independent draws: of Laplace's law, and no normal numbers of the same variance."""
    every = torch.cat([one.flatten().double() for one in draws]).numpy()
    assert len(every) > 2000
    assert stats.kstest(every, "laplace", args=(0, B)).pvalue > 1e-3
    assert stats.kstest(every, "norm", args=(0, B * 2**0.5)).pvalue < 1e-6


def test_representations_get_draws_of_the_mechanism() -> None:
    federation = Federation(random_clients("snc"), MLP((5,)), protection=NOISY)
    weights = federation.start().weights
    exact = exchange(Federation(federation.graph, MLP((5,))).prediction.guard, 0, weights).uploaded_h
    assert_laplace(exchange(federation.prediction.guard, t, weights).uploaded_h - exact for t in range(100))


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_jacobians_get_draws_of_the_mechanism(share: float) -> None:
    """Between two clients G_k = Ã_kj E_j: one draw, in every round in which j uploads."""
    options: dict[str, Any] = {"aggregator": APPNP(0.2, 4), "participation": Participation(share=share), "seed": 3}
    federation = Federation(nodes(2, [(0, 1)]), MLP((16,)), protection=NOISY, **options)
    A = federation.propagation.dense()
    state, seen = federation.start(), set()
    draws = []
    for _ in range(25):
        parts = federation.local_problem(state).noise.parts(["W1", "W2"])
        for k, j in ((0, 1), (1, 0)):
            upload = (j, int(state.uploaded_in[j]))
            if upload[1] >= 0 and upload not in seen:
                seen.add(upload)
                draws += [part[k] / A[k, j] for part in parts.values()]
        state, _ = federation.round(state)
    assert len(seen) == (50 if share == 1.0 else 25)
    assert_laplace(draws)


def test_models_get_draws_of_the_mechanism() -> None:
    """Where one client trains the average is its model."""
    draws = []
    for seed in range(30):
        made = [
            Federation(nodes(2, [(0, 1)]), MLP((32,)), participation=Participation(train=1), seed=seed, protection=p)
            for p in (Protection(), Protection(update=Laplace(B)))
        ]
        plain, noisy = (federation.round(federation.start())[0].weights for federation in made)
        draws += [noisy[name] - weight for name, weight in plain.items()]
    assert_laplace(draws)


def test_an_average_gets_the_mean_of_independent_draws() -> None:
    """Of 6 models with Laplace noise: the variance is 2 b²/6 and the excess kurtosis 3/6, where a normal one has 0."""
    draws = []
    for seed in range(200):
        made = [
            Federation(random_clients("dnc"), MLP((5,)), seed=seed, protection=p)
            for p in (Protection(), Protection(update=Laplace(B)))
        ]
        plain, noisy = (federation.round(federation.start())[0].weights for federation in made)
        draws += [(noisy[name] - weight).flatten() for name, weight in plain.items()]
    every = torch.cat(draws).numpy()
    assert every.var() == pytest.approx(2 * B**2 / 6, rel=0.06)
    assert stats.kurtosis(every) == pytest.approx(0.5, abs=0.25)


def test_a_single_upload_gets_draws_of_the_mechanism() -> None:
    source = NoiseKey.of_seed(0).source("test")
    W = {"W1": torch.ones(30, 20)}
    uploads = (RepresentationUpload(0, torch.ones(600)), JacobianUpload(0, W), ModelUpload(0, W))
    for upload in uploads:
        draws = []
        for _ in range(5):
            message = protected(upload, NOISY, W, source)
            if isinstance(message, RepresentationUpload):
                draws.append(message.h - 1)
            else:
                assert isinstance(message, JacobianUpload | ModelUpload)
                draws.append((message.jacobian if isinstance(message, JacobianUpload) else message.weights)["W1"] - 1)
        assert_laplace(draws)


VARIANTS: dict[str, dict[str, Any]] = {
    "everyone": {},
    "some": {"participation": Participation(train=0.5, share=0.4)},
    "learnable": {"aggregator": LearnablePolynomial(0.2, 3), "paths": ["general"]},
    "deep": {"encoder": MLP((5, 4), "tanh", True), "paths": ["general"]},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_every_path_follows_the_oracle(task: str, variant: str) -> None:
    options = {"encoder": MLP((5,)), "aggregator": APPNP(0.2, 4), **VARIANTS[variant]}
    paths: list[Path] = options.pop("paths", ["dual", "primal", "general"])
    for protection in (NOISY, BOUNDED):
        for path in paths:
            local = LocalTraining(0.3, 3, 2 if task != "dnc" else None)
            federation = Federation(
                random_clients(task),
                local=local,
                path=path,
                seed=5,
                protection=protection,
                noise_key=NoiseKey.of_seed(5),
                **options,
            )
            state = federation.start()
            for _ in range(3):
                state, _ = federation.round(state)
            for name, weight in protected_trajectory(federation, 3).items():
                torch.testing.assert_close(state.weights[name], weight, rtol=1e-6, atol=1e-6)


def test_a_federation_trains_under_it() -> None:
    mild = Protection(hidden=Laplace(0.05, 5.0), jacobian=Laplace(0.01, 20.0), update=Laplace(0.01, 1.0))
    federation = Federation(DNC(num_clients=50).graph, local=LocalTraining(0.5, 5), protection=mild)
    state = federation.start()
    before = federation.metrics_of(state.weights)
    for _ in range(30):
        state, report = federation.round(state)
    assert report.metrics["train"].loss < 0.5 * before["train"].loss
    assert report.metrics["test"].accuracy > 0.8
