"""Protected rounds against the loop oracle with the same noise, across paths; without protection not a bit changes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from graph_builders import random_clients
from protected_oracle import protected_trajectory
from protections import protection
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local import dual, general
from gfl_lightning.federated.local.client_models import client_models
from gfl_lightning.federated.local.general import GeneralPath
from gfl_lightning.federated.local.options import LocalTraining, Path
from gfl_lightning.federated.local.problem import LocalProblem, finite_only, update_norms
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protection import guard as guard_module
from gfl_lightning.federated.protection.jacobian_noise_sources import AfterAggregation
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection

ROUNDS = 3
LATTICE = 1e-6
"""How far a trajectory may be from one whose noise is not rounded."""
NOTHING = Protection()
SOME = Participation(train=0.5, share=0.4)
UPLOADS = {"hidden_std": 0.2, "hidden_clip": 0.4, "jacobian_clip": 0.8}
CASES: dict[str, dict[str, Any]] = {
    "hn": {"hidden_std": 0.3},
    "hn_gn": {"hidden_std": 0.3, "jacobian_std": 0.2},
    "bounds": {"hidden_clip": 0.3, "jacobian_clip": 0.8},
    "bounds of samples": {"hidden_clip": 0.3, "jacobian_clip": 0.8, "unit": "sample"},
    "updates": {"update_clip": 0.1, "update_std": 0.05},
    "everything of a client": {**UPLOADS, "jacobian_std": 0.1, "update_clip": 0.1, "update_std": 0.02},
    "DP-SGD": {"step_clip": 0.3, "noise_multiplier": 0.5, "unit": "sample"},
    "everything of a sample": {
        **UPLOADS,
        "jacobian_std": 0.1,
        "step_clip": 0.3,
        "noise_multiplier": 0.4,
        "unit": "sample",
    },
}


def build(
    task: str,
    path: Path = "auto",
    noisy: Protection = NOTHING,
    d: int = 6,
    **options: Any,
) -> Federation:
    options = dict(options)
    encoder = MLP(options.pop("hidden", (5,)), options.pop("activation", "relu"), options.pop("bias", False))
    local = LocalTraining(0.3, 3, 2 if task != "dnc" else None, **options.pop("optimizer", {}))
    options.setdefault("aggregator", APPNP(0.2, 4))
    graph = random_clients(task, d=d)
    if options.pop("weighted", False):
        graph = replace(graph, weight=torch.linspace(0.1, 4, graph.num_samples, dtype=graph.x.dtype))
    return Federation(
        graph,
        encoder,
        local=local,
        path=path,
        seed=options.pop("seed", 5),
        noise_key=NoiseKey.of_seed(5),
        protection=noisy,
        **options,
    )


def trajectory(federation: Federation, rounds: int = ROUNDS) -> Weights:
    state = federation.start()
    for _ in range(rounds):
        state, _ = federation.round(state)
    return state.weights


def assert_close(ours: Weights, theirs: Weights, tolerance: float = 1e-9) -> None:
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        assert float((ours[name] - weight).abs().max()) < tolerance, name


def carries(path: str, noisy: Protection) -> bool:
    return path != "dual" or noisy.steps.is_inert


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("path", ["dual", "primal", "general"])
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_partial_rounds_follow_the_oracle(task: str, path: Path, case: str) -> None:
    """Uploads that stand keep their noise, which is drawn entry by entry and known to the oracle."""
    noisy = protection(**CASES[case])
    if carries(path, noisy):
        federation = build(task, path, noisy, participation=SOME)
        assert_close(trajectory(federation), protected_trajectory(federation, ROUNDS), LATTICE)


@pytest.mark.parametrize("case", [name for name, options in CASES.items() if not options.get("jacobian_std")])
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_full_rounds_follow_the_oracle(task: str, case: str) -> None:
    federation = build(task, "auto", protection(**CASES[case]))
    assert_close(trajectory(federation), protected_trajectory(federation, ROUNDS), LATTICE)


@pytest.mark.parametrize("d", [6, 40])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_the_same_noise_on_every_path(task: str, case: str, d: int) -> None:
    """With few features the noise is drawn in all of the space, with many only where the samples lie."""
    noisy = protection(**CASES[case])
    everywhere = [p for p in ("dual", "primal", "general") if carries(p, noisy)]
    for participation in (Participation(), Participation(train=0.5)):
        first, *others = (trajectory(build(task, p, noisy, d, participation=participation)) for p in everywhere)
        for other in others:
            assert_close(first, other)


GENERAL: dict[str, dict[str, Any]] = {
    "learnable": {"aggregator": LearnablePolynomial(0.2, 3)},
    "deep": {"hidden": (5, 4), "activation": "tanh", "bias": True},
    "momentum": {"optimizer": {"momentum": 0.7, "weight_decay": 0.1, "proximal": 0.3}},
    "v1": {"estimator": "v1", "path": "general"},
}


@pytest.mark.parametrize("variant", GENERAL)
@pytest.mark.parametrize("case", ["everything of a client", "everything of a sample"])
def test_every_encoder_aggregator_and_optimizer_is_protected(variant: str, case: str) -> None:
    options = {**GENERAL[variant]}
    numbers = {**CASES[case]}
    if options.get("estimator") == "v1":
        numbers = {name: value for name, value in numbers.items() if not name.startswith("jacobian")}
    federation = build("snc", options.pop("path", "auto"), protection(**numbers), participation=SOME, **options)
    assert_close(trajectory(federation), protected_trajectory(federation, ROUNDS), LATTICE)


def test_noise_outside_of_the_samples_space_follows_the_optimizer() -> None:
    """Momentum, decay and proximity act on all of the noise, also on what is only added to the average.

    Drawn in the small basis or in all of the space the noise differs, so the laws are compared over many seeds; a
    bound that nothing reaches makes the difference.
    """
    options = {"optimizer": {"momentum": 0.5, "weight_decay": 0.2, "proximal": 0.1}}
    plain = trajectory(build("dnc", "general", d=40, **options), 1)["W1"]
    moments = []
    for bound in (math.inf, 1e9):
        federation = build("dnc", "general", protection(jacobian_std=0.3, update_clip=bound), 40, **options)
        shield = federation.shield
        assert isinstance(shield.jacobians, AfterAggregation)
        assert (shield.jacobians.law.reads is None) == math.isfinite(bound)
        noise = []
        for seed in range(150):
            vars(federation)["shield"] = replace(
                shield, jacobians=replace(shield.jacobians, key=NoiseKey.of_seed(seed))
            )
            noise.append(trajectory(federation, 1)["W1"] - plain)
        stacked = torch.stack(noise)
        moments.append(float(stacked.square().mean()))
        assert abs(float(stacked.mean())) < 5 * float(stacked.std()) / math.sqrt(stacked.numel())
    assert moments[0] == pytest.approx(moments[1], rel=0.05)


@pytest.mark.parametrize("path", ["primal", "general"])
def test_weights_of_losses_are_bounded_with_the_gradients(path: Path) -> None:
    """A sample of a rare class, however heavy, moves the sum by no more than the bound."""
    federation = build("sc", path, protection(**CASES["everything of a sample"]), participation=SOME, weighted=True)
    assert_close(trajectory(federation), protected_trajectory(federation, ROUNDS), LATTICE)


@pytest.mark.parametrize("task", ["dnc", "sc"])
@pytest.mark.parametrize("path", ["dual", "primal", "general"])
def test_no_bound_and_no_noise_change_not_a_bit(task: str, path: Path) -> None:
    plain, inert = trajectory(build(task, path)), trajectory(build(task, path, Protection()))
    assert all(torch.equal(plain[name], weight) for name, weight in inert.items())


@pytest.mark.parametrize("path", ["dual", "primal", "general"])
def test_bounds_that_nothing_reaches_leave_the_trajectory(path: Path) -> None:
    loose = protection(hidden_clip=1e6, jacobian_clip=1e6, update_clip=1e6)
    assert_close(trajectory(build("snc", path, loose)), trajectory(build("snc", path)), 1e-12)


@pytest.mark.parametrize("case", CASES)
def test_every_option_has_an_effect(case: str) -> None:
    """Each field of a case, left out alone, changes the result."""
    options = CASES[case]
    whole = trajectory(build("snc", "general", protection(**options)))
    for name in options.keys() - {"unit", "step_clip"}:
        less = trajectory(build("snc", "general", protection(**{n: v for n, v in options.items() if n != name})))
        assert any(float((whole[n] - w).abs().max()) > 1e-5 for n, w in less.items()), name


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    for path, case in (("dual", "everything of a client"), ("general", "everything of a sample")):
        noisy = protection(**CASES[case])
        whole = trajectory(build("snc", path, noisy))
        with monkeypatch.context() as patch:
            patch.setattr(dual, "CHUNK_ENTRIES", 40)
            patch.setattr(general, "CHUNK_BYTES", 4000)
            patch.setattr(guard_module, "CHUNK_ENTRIES", 30)
            assert_close(trajectory(build("snc", path, noisy)), whole)


@pytest.mark.parametrize("path", ["dual", "primal", "general"])
def test_client_models_average_to_what_the_round_makes(path: Path) -> None:
    """The clients' own models, noise included, where all of it is drawn before the steps."""
    for noisy in (protection(jacobian_std=0.3), protection(hidden_std=0.3, step_clip=0.2)):
        if carries(path, noisy):
            federation = build("snc", path, noisy)
            state = federation.start()
            models = client_models(federation, state)
            after, _ = federation.round(state)
            mean = {name: torch.tensordot(models.vote, W, 1) for name, W in models.weights.items()}
            assert_close(mean, after.weights)


def test_client_models_carry_all_of_the_noise_where_a_round_draws_less() -> None:
    """The same on every path, and in directions that no client reads."""
    plain = build("dnc", "dual", d=40)
    exact = client_models(plain, plain.start()).weights["W1"]
    found = []
    for path in ("dual", "primal", "general"):
        federation = build("dnc", path, protection(jacobian_std=0.3), d=40)
        found.append(client_models(federation, federation.start()).weights)
        assert_close(found[0], found[-1])
    x = plain.graph.x[plain.schedule.training.sample].flatten(0, 1)
    unread = torch.eye(40, dtype=x.dtype) - torch.linalg.pinv(x) @ x
    assert float(((found[0]["W1"] - exact) @ unread).flatten(1).norm(dim=1).min()) > 1e-2


@pytest.mark.parametrize("noisy", [protection(update_std=1.0), protection(update_clip=0.5), protection(step_clip=1.0)])
def test_a_client_that_is_not_finite_counts_as_no_update_under_protection(noisy: Protection) -> None:
    """Votes must not depend on data: what is left out makes nobody else's vote larger."""
    problem = build("dnc", "primal", noisy).local_problem(build("dnc", "primal", noisy).start())
    W = problem.weights["W1"]
    update = torch.full_like(W, 0.1)
    stacked = W + update.expand(len(problem.training), -1, -1)
    stacked[2] = math.nan
    skipped, vote, (kept,) = finite_only(problem.vote, stacked)
    vote = problem.counted(vote, skipped, lambda: update_norms({"W1": W}, {"W1": kept}))
    scale = min(1.0, noisy.update.clip / float(update.norm()))
    share = 1 - 1 / len(problem.training)
    assert skipped == 1
    assert torch.allclose(problem.average(W, vote, kept) - W, share * scale * update)


def test_a_client_that_is_not_finite_leaves_the_noise_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the general path too, where the coefficients of its noise are not finite either."""
    federation = build("dnc", "general", protection(jacobian_std=0.1), d=40)
    train = GeneralPath._train

    def broken(self: GeneralPath, problem: LocalProblem, part: Tensor) -> tuple[Weights, Tensor | None]:
        Wk, pull = train(self, problem, part)
        assert pull is not None
        for values in (*Wk.values(), pull):
            values[1] = math.nan
        return Wk, pull

    monkeypatch.setattr(GeneralPath, "_train", broken)
    after, report = federation.round(federation.start())
    assert report.skipped == 1
    assert all(bool(weight.isfinite().all()) for weight in after.weights.values())


def test_features_that_could_overflow_are_refused() -> None:
    graph = random_clients("dnc")
    x = graph.x.clone()
    x[3, 2] = 2e9
    with pytest.raises(InputError, match=r"graph.x must hold features of at most 1e\+09 where uploads are protected"):
        Federation(replace(graph, x=x), MLP((5,)), protection=protection(hidden_std=1.0))


def test_evaluation_uses_the_uploads_of_its_round_and_the_clients_own_representation() -> None:
    federation = build("dnc", "auto", protection(hidden_std=0.5))
    state, report = federation.round(federation.start())
    assert federation.metrics_of(state.weights, state.round) == report.metrics
    A = federation.propagation.dense()
    h = federation.encoder(state.weights, federation.graph.x)
    noise = Gaussian(1.0).draw(tuple(h.shape), federation.noise_key.source("hidden", 1))
    expected = A @ (h + 0.5 * noise) - A.diagonal()[:, None] * 0.5 * noise
    assert torch.allclose(federation.logits(state), expected, atol=LATTICE)
    assert torch.allclose(federation.logits_of(state.weights), A @ h)


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"jacobian_std": 0.1},
        {"estimator": "v1"},
        "jacobian noise must be 0 where the estimator is v1, as no Jacobian is shared",
    ),
    ({"jacobian_clip": 1.0}, {"estimator": "v1"}, "jacobian.clip must be infinite where the estimator is v1"),
    ({"hidden_std": 0.1}, {"aggregator": Identity()}, "hidden noise must be 0 where the aggregator is the identity"),
    (
        {"hidden_clip": 0.1},
        {"aggregator": Identity()},
        "hidden.clip must be infinite where the aggregator is the identity",
    ),
    (
        {"hidden_std": 0.1},
        {"protocol": "gram"},
        "protocol must be jacobian where uploads are protected, as the factors",
    ),
    ({"update_std": 0.1}, {"estimator": "exact"}, "estimator must be compensated or v1 where uploads are protected"),
    ({"step_clip": 1.0}, {"path": "dual"}, "path must be primal or general where local steps are DP-SGD's, got 'dual'"),
]


@pytest.mark.parametrize(("numbers", "options", "message"), REFUSED)
def test_what_cannot_be_protected_is_refused(numbers: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build("dnc", noisy=protection(**numbers), **options)


def test_server_weighting_and_optimizers_come_after_protection() -> None:
    """FedAdam on protected uploads: post-processing, so the same noise enters."""
    noisy = protection(**CASES["updates"])
    options: list[dict[str, Any]] = [{"weighting": "samples"}, {"server": FedAdam(0.1)}]
    for chosen in options:
        paths = [trajectory(build("snc", p, noisy, **chosen)) for p in ("dual", "general")]
        assert_close(*paths)
