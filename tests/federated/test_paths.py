"""Every path against the loop oracle, across tasks, numbers of local steps, variants and precisions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from graph_builders import random_clients
from oracle import Client, dense_powers, run_round
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.federated.exchange import neighbourhood, prediction
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local import dual, general
from gfl_lightning.federated.local.client_models import ClientModels, client_models
from gfl_lightning.federated.local.linear import LinearPath
from gfl_lightning.federated.local.linear_span import LinearSpanPath
from gfl_lightning.federated.local.options import LocalTraining, Path
from gfl_lightning.federated.local.paths import Sizes, choose_path
from gfl_lightning.federated.participation import Participation
from gfl_lightning.graphs.datasets.snc import SNC
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection

ROUNDS = 3
VARIANTS: dict[str, dict[str, Any]] = {
    "compensated": {},
    "v1": {"estimator": "v1"},
    "identity": {"aggregator": Identity()},
    "sgc": {"aggregator": SGC(3)},
    "partial": {"participation": Participation(train=0.5, share=0.4)},
    "by number": {"participation": Participation(train=2, share=3), "weighting": "samples"},
    "v1 partial": {"estimator": "v1", "participation": Participation(train=3, share=0.3)},
}
GENERAL_VARIANTS: dict[str, dict[str, Any]] = {
    "learnable": {"aggregator": LearnablePolynomial(0.2, 3)},
    "learnable partial": {"aggregator": LearnablePolynomial(0.2, 3), "participation": Participation(0.5, 0.5)},
    "learnable v1": {"aggregator": LearnablePolynomial(0.2, 3), "estimator": "v1"},
    "learnable from the identity": {"aggregator": LearnablePolynomial(1.0, 3)},
    "deep": {"hidden": (5, 4), "activation": "tanh", "bias": True},
    "linear": {"hidden": (), "bias": True},
    "gelu": {"activation": "gelu"},
    "momentum": {"optimizer": {"momentum": 0.7, "weight_decay": 0.1, "proximal": 0.3}},
}


def build(task: str, steps: int, path: Path, dtype: torch.dtype = torch.float64, **variant: Any) -> Federation:
    graph = random_clients(task, dtype=dtype)
    variant = dict(variant)
    encoder = MLP(variant.pop("hidden", (5,)), variant.pop("activation", "relu"), variant.pop("bias", False))
    local = LocalTraining(0.3, steps, 2 if task != "dnc" else None, **variant.pop("optimizer", {}))
    variant.setdefault("aggregator", APPNP(0.2, 4))
    return Federation(graph, encoder, local=local, path=path, seed=5, **variant)


def trajectory(federation: Federation, rounds: int = ROUNDS) -> Weights:
    state = federation.start()
    for _ in range(rounds):
        state, _ = federation.round(state)
    return state.weights


def oracle_trajectory(federation: Federation, weighting: str = "uniform") -> Weights:
    graph, aggregator = federation.graph, federation.aggregator
    clients = [Client(graph, k, federation.encoder) for k in range(graph.num_clients)]
    powers = dense_powers(graph, len(aggregator.gamma) - 1)
    if not aggregator.learnable:
        powers = torch.tensordot(aggregator.gamma.to(powers), powers, 1)[None]
    W = federation.start().weights
    local = federation.local
    for number in range(ROUNDS):
        W = run_round(
            clients,
            powers,
            W,
            federation.schedule.who_shares(number).tolist(),
            federation.schedule.who_trains(number).tolist(),
            federation.schedule.batches_by_client(number),
            local.lr,
            compensated=federation.estimator == "compensated",
            by_samples=weighting == "samples",
            momentum=local.momentum,
            weight_decay=local.weight_decay,
            proximal=local.proximal,
        )
    return W


def assert_close(found: Weights, expected: Weights, relative: float) -> None:
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        scale = float(weight.abs().max())
        assert float((found[name].double() - weight.double()).abs().max()) <= relative * scale, name


@cache
def expected(task: str, steps: int, variant: str) -> Weights:
    options = VARIANTS[variant]
    return oracle_trajectory(build(task, steps, "auto", **options), options.get("weighting", "uniform"))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("steps", [1, 3, 10])
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_all_paths_agree_with_the_oracle(task: str, steps: int, variant: str) -> None:
    for path in ("dual", "primal", "general"):
        federation = build(task, steps, path, **VARIANTS[variant])
        assert federation.path == path
        assert_close(trajectory(federation), expected(task, steps, variant), 1e-10)
        single = build(task, steps, path, torch.float32, **VARIANTS[variant])
        start = {name: weight.float() for name, weight in federation.start().weights.items()}
        state = single.start(start)
        for _ in range(ROUNDS):
            state, _ = single.round(state)
        assert state.weights["W1"].dtype == torch.float32
        assert_close(state.weights, expected(task, steps, variant), 1e-5)


@pytest.mark.parametrize("variant", GENERAL_VARIANTS)
@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_general_path_carries_every_option(task: str, variant: str) -> None:
    federation = build(task, 3, "auto", **GENERAL_VARIANTS[variant])
    assert federation.path == "general"
    found = trajectory(federation)
    assert_close(found, oracle_trajectory(federation), 1e-10)
    if federation.aggregator.learnable:
        assert not torch.equal(found["gamma"], federation.aggregator.gamma)


@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_exact_estimator_is_sgd_on_each_clients_own_view_of_the_whole_graph(task: str) -> None:
    federation = build(task, 4, "auto", estimator="exact")
    graph, W = federation.graph, federation.start().weights
    A = torch.tensordot(federation.aggregator.gamma, dense_powers(graph, 4), 1)
    owners = torch.nn.functional.one_hot(graph.client, graph.num_clients).to(A) * graph.shared[:, None]
    mean = (owners / owners.sum(0)).T
    for number in range(2):
        models = []
        for k, batches in federation.schedule.batches_by_client(number).items():
            rows = ((graph.client == k) & (graph.split == 0)).nonzero().flatten()
            own = {name: w.clone().requires_grad_() for name, w in W.items()}
            optimizer = torch.optim.SGD(list(own.values()), lr=federation.local.lr)
            for batch in batches:
                h = federation.encoder(own, graph.x)
                others = A[k].clone()
                others[k] = 0
                logits = A[k, k] * h[rows[batch]] + others @ (mean @ h)
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(logits, graph.y[rows[batch]]).backward()
                optimizer.step()
            models.append({name: w.detach() for name, w in own.items()})
        W = {name: torch.stack([model[name] for model in models]).mean(0) for name in W}
    assert_close(trajectory(federation, 2), W, 1e-10)


def test_exact_and_compensated_differ_only_by_staleness() -> None:
    one_step = [trajectory(build("dnc", 1, "auto", estimator=e)) for e in ("compensated", "exact")]
    assert_close(one_step[0], one_step[1], 1e-12)
    several = [trajectory(build("dnc", 10, "auto", estimator=e)) for e in ("compensated", "exact", "v1")]
    gap = [float((several[i]["W1"] - several[1]["W1"]).norm()) for i in (0, 2)]
    assert 0 < gap[0] < gap[1]


def test_small_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[Path, dict[str, Any]]] = [
        ("general", {}),
        ("general", {"estimator": "exact"}),
        ("dual", {}),
        ("primal", {}),
    ]
    whole = [trajectory(build("sc", 3, path, **variant)) for path, variant in cases]
    monkeypatch.setattr(general, "CHUNK_BYTES", 1)
    monkeypatch.setattr(dual, "CHUNK_ENTRIES", 1)
    monkeypatch.setattr(neighbourhood, "ROW_ENTRIES", 1)
    monkeypatch.setattr(prediction, "DENSE_ENTRIES", 1)
    for (path, variant), reference in zip(cases, whole, strict=True):
        federation = build("sc", 3, path, **variant)
        assert_close(trajectory(federation), reference, 1e-12)
    partial = build("sc", 3, "dual", participation=Participation(0.5, 0.5))
    assert_close(trajectory(partial), expected_partial(), 1e-10)


def expected_partial() -> Weights:
    return oracle_trajectory(build("sc", 3, "dual", participation=Participation(0.5, 0.5)))


LINEAR_VARIANTS: dict[str, dict[str, Any]] = {
    **VARIANTS,
    "momentum": {"optimizer": {"momentum": 0.7, "weight_decay": 0.1, "proximal": 0.3}},
    "weight decay": {"optimizer": {"weight_decay": 0.2}},
    "weight decay v1 partial": {"optimizer": {"weight_decay": 0.2}, **VARIANTS["v1 partial"]},
}


@pytest.mark.parametrize("variant", LINEAR_VARIANTS)
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_the_linear_path_agrees_with_the_oracle_and_the_general_path(task: str, steps: int, variant: str) -> None:
    options = LINEAR_VARIANTS[variant]
    found = build(task, steps, "auto", hidden=(), **options)
    assert found.path == "linear"
    weights = trajectory(found)
    assert_close(weights, oracle_trajectory(found, options.get("weighting", "uniform")), 1e-10)
    for kind in (LinearPath, LinearSpanPath):
        parts = (found.prediction.table, "W1", found.local, found._near, options.get("estimator") != "v1")
        found.local_path = kind.prepare(*parts)
        assert_close(trajectory(found), weights, 1e-10)
        models = client_models(found, found.start())
        assert_close(found.round(found.start())[0].weights, averaged(models), 1e-10)
    general = build(task, steps, "general", hidden=(), **options)
    assert_close(weights, trajectory(general), 1e-10)
    state, report = found.round(found.start())
    same, other = general.round(general.start())
    torch.testing.assert_close(found.logits(state), general.logits(same), rtol=1e-9, atol=1e-10)
    assert report.metrics["val"].loss == pytest.approx(other.metrics["val"].loss)


def averaged(models: ClientModels) -> Weights:
    return {name: torch.tensordot(models.vote, W, 1) for name, W in models.weights.items()}


@pytest.mark.parametrize("kind", [LinearPath, LinearSpanPath])
def test_a_linear_model_that_outgrows_its_precision_diverges_and_does_not_break(kind: type[LinearPath]) -> None:
    local = LocalTraining(1e9, steps=9, weight_decay=1e9)
    federation = Federation(random_clients("dnc", dtype=torch.float32), MLP(()), local=local)
    federation.local_path = kind.prepare(federation.prediction.table, "W1", local, federation._near, True)
    with pytest.raises(DivergedError):
        federation.round(federation.start())


def test_the_linear_path_goes_by_coefficients_where_samples_are_few() -> None:
    assert isinstance(build("dnc", 3, "auto", hidden=()).local_path, LinearSpanPath)
    assert not isinstance(build("sc", 3, "auto", hidden=()).local_path, LinearSpanPath)


def test_the_linear_encoder_starts_at_zero_and_takes_the_linear_path() -> None:
    federation = Federation(random_clients("sc"), Linear(), local=LocalTraining(0.3, 3, 2, weight_decay=0.1))
    assert federation.path == "linear"
    assert not federation.start().weights["W"].any()
    assert_close(trajectory(federation), oracle_trajectory(federation), 1e-10)


@pytest.mark.parametrize("aggregator", [APPNP(0.02, 40), SGC(3), Identity()])
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_outputs_of_propagated_features_are_propagated_outputs(
    task: str, aggregator: Aggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_clients(task)
    kept = Federation(graph, MLP(()), aggregator)
    weights = kept.start().weights
    logits = kept.logits_of(weights)
    monkeypatch.setattr(prediction, "PROPAGATED_ENTRIES", 0)
    other = Federation(graph, MLP(()), aggregator)
    assert other.prediction._propagated is None
    torch.testing.assert_close(logits, other.logits_of(weights), rtol=1e-10, atol=1e-12)


def test_the_linear_path_bounds_updates_and_takes_noisy_representations() -> None:
    protection = Protection(hidden=Gaussian(0.3, 0.5), update=Gaussian(clip=0.01))
    for task in ("dnc", "sc"):
        options = {"hidden": (), "protection": protection, "noise_key": NoiseKey.of_seed(0)}
        found = [trajectory(build(task, 4, path, **options)) for path in ("linear", "general")]
        assert_close(found[0], found[1], 1e-10)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"hidden": (5,)}, "the encoder is not a linear map without bias"),
        ({"hidden": (), "bias": True}, "the encoder is not a linear map without bias"),
        ({"hidden": (), "aggregator": LearnablePolynomial()}, "the aggregator is learnable"),
        ({"hidden": (), "estimator": "exact"}, "the estimator is exact"),
        ({"hidden": (), "protection": Protection(jacobian=Gaussian(1.0))}, "Jacobians or steps are protected"),
        ({"hidden": (), "protection": Protection(steps=StepNoise(1.0))}, "Jacobians or steps are protected"),
    ],
)
def test_the_linear_path_is_refused_where_it_cannot_carry_the_options(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=f"path must be another where {why}, got 'linear'"):
        build("dnc", 3, "linear", **options)
    assert build("dnc", 3, "auto", **options).path != "linear"


@pytest.mark.parametrize("path", ["dual", "primal", "general"])
def test_sparse_features_take_the_same_trajectory(path: Path) -> None:
    graph = random_clients("dnc", d=60)
    mask = torch.rand(graph.x.shape, generator=torch.Generator().manual_seed(1)) < 0.05
    sparse = graph.to(torch.float64)
    object.__setattr__(sparse, "x", torch.where(mask, graph.x, 0))
    federation = Federation(sparse, MLP((5,)), local=LocalTraining(0.3, 3), path=path)
    assert federation.prediction.table.features.rows is not None
    assert_close(trajectory(federation), oracle_trajectory(federation), 1e-10)


PAPERS = SizedEncoder(MLP(), 1433, 7)
SYNTHETIC = SizedEncoder(MLP(), 100, 2)


@pytest.mark.parametrize(
    ("sizes", "encoder", "local", "path"),
    [
        (Sizes(K=35, n=1, N=300, Q=300), PAPERS, LocalTraining(), "dual"),
        (Sizes(K=140, n=1, N=2708, Q=2708), PAPERS, LocalTraining(), "dual"),
        (Sizes(K=20, n=40, N=200, Q=8000), SYNTHETIC, LocalTraining(), "primal"),
        (Sizes(K=20, n=40, N=200, Q=8000), SYNTHETIC, LocalTraining(steps=1), "dual"),
        (Sizes(K=20, n=500, N=200, Q=10**6), SizedEncoder(MLP(), 2, 2), LocalTraining(batch_size=1), "primal"),
        (Sizes(K=35, n=1, N=300, Q=300), SizedEncoder(MLP(bias=True), 1433, 7), LocalTraining(), "general"),
    ],
)
def test_path_is_chosen_by_cost(sizes: Sizes, encoder: SizedEncoder, local: LocalTraining, path: str) -> None:
    assert choose_path("auto", sizes, encoder, APPNP(), "compensated", local) == path


def test_v1_needs_no_inner_products_with_others() -> None:
    sizes = Sizes(K=20, n=40, N=200, Q=8000)
    assert choose_path("auto", sizes, SYNTHETIC, APPNP(), "v1", LocalTraining()) == "dual"


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("path", ["dual", "primal"])
def test_the_order_of_samples_does_not_matter(path: str, steps: int) -> None:
    """Equally many samples in the order of their clients are means and products of views; any other order is not."""
    graph = SNC(num_clients=20, num_features=6, samples_per_client=4).graph.to(torch.float64)
    rows = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    columns = {name: getattr(graph, name)[rows] for name in ("x", "y", "client", "split", "shared")}
    found = []
    for one in (graph, replace(graph, **columns)):
        federation = Federation(one, MLP((5,)), local=LocalTraining(0.3, steps), path=path)  # type: ignore[arg-type]
        state = federation.start()
        for _ in range(3):
            state, _ = federation.round(state)
        found.append((federation.prediction.table.even, state.weights))
    assert (found[0][0], found[1][0]) == (True, False)
    for name, weight in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], weight, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"bias": True}, "the encoder is not two-layer ReLU without bias"),
        ({"hidden": (5, 5)}, "the encoder is not two-layer ReLU without bias"),
        ({"aggregator": LearnablePolynomial()}, "the aggregator is learnable"),
        ({"estimator": "exact"}, "the estimator is exact"),
        ({"optimizer": {"momentum": 0.5}}, "clients use more than plain SGD"),
    ],
)
def test_a_structured_path_is_refused_where_it_cannot_carry_the_options(options: dict[str, Any], why: str) -> None:
    for path in ("dual", "primal"):
        with pytest.raises(InputError, match=f"path must be general where {why}, got '{path}'"):
            build("dnc", 3, path, **options)


def test_unknown_path_is_refused() -> None:
    with pytest.raises(InputError, match="path must be one of auto, dual, primal, linear, general, got 'gramm'"):
        build("dnc", 3, "gramm")  # type: ignore[arg-type]


def as_tensor(weights: Weights) -> Tensor:
    return torch.cat([weight.flatten() for weight in weights.values()])


def test_aggregators_really_differ() -> None:
    choices: list[Aggregator] = [APPNP(), SGC(2), Identity()]
    found = [as_tensor(trajectory(build("dnc", 3, "dual", aggregator=a))) for a in choices]
    assert all(float((found[i] - found[j]).abs().max()) > 1e-3 for i, j in ((0, 1), (0, 2), (1, 2)))
