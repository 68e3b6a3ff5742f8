"""Personal terms: a slow minimiser finds the same, loops over clients take the same steps, limits are known."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from graph_builders import random_clients, with_numbers
from oracle import Client, dense_powers, run_round
from scipy.optimize import minimize
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.federated.exchange import neighbourhood
from gfl_lightning.federated.exchange.prediction import Prediction
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.personal.level_strength import LEAST, MOST, level_strength, moments, sums
from gfl_lightning.federated.personal.offsets import Offset
from gfl_lightning.federated.personal.terms import PersonalFit
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.huber import Huber
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.personal.gate import Gate
from gfl_lightning.models.personal.own_level import OwnLevel
from gfl_lightning.models.personal.own_slopes import OwnSlopes
from gfl_lightning.models.personal.personal import Personal
from gfl_lightning.models.personal.shared import Shared
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.theory.gradient import gradient, objective

KINDS: tuple[Personal, ...] = (OwnLevel(0.7), OwnSlopes(0.5, 2.0), Gate(0.3, 0.8), Gate(0.3, math.inf))


def labelled(loss: Loss, task: str = "sc", seed: int = 0) -> ClientGraph:
    graph = random_clients(task, seed=seed)
    return graph if not loss.of_numbers else with_numbers(graph, loss)


def build(graph: ClientGraph, personal: Personal, steps: int = 3, **options: Any) -> Federation:
    local = options.pop("local", LocalTraining(0.1, steps, 2 if int(graph.counts().max()) > 1 else None))
    options = {"aggregator": APPNP(0.2, 4)} | options
    return Federation(graph, MLP((5,)), local=local, seed=5, personal=personal, **options)


def slow_terms(
    loss: Loss, personal: Personal, x: Tensor, y: Tensor, weight: Tensor, z: Tensor, h: Tensor
) -> tuple[float, Tensor]:
    """g and B of one client by a general minimiser with bounds, on gradients by autograd."""
    phi, c = personal.features(x), z.shape[1]
    strength = torch.tensor(personal.strengths(x.shape[1]), dtype=z.dtype)
    gated = math.isfinite(personal.gate_strength)

    def objective(flat: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        theta = torch.tensor(flat, dtype=z.dtype, requires_grad=True)
        g, B = theta[0], theta[1:].view(c, -1)
        out = g * z + (1 - g) * h + phi @ B.T
        value = (weight * loss.losses(out, y)).sum() + 0.5 * (B**2 * strength).sum()
        value = value + 0.5 * personal.gate_strength * (g - 1) ** 2 if gated else value
        slope = torch.autograd.grad(value, theta)[0]
        return float(value.detach()), slope.numpy()

    start = np.zeros(1 + c * phi.shape[1])
    start[0] = 1
    bounds = [(0.0 if gated else 1.0, 1.0), *[(None, None)] * (len(start) - 1)]
    options = {"ftol": 1e-16, "gtol": 1e-12, "maxiter": 10_000, "maxfun": 100_000}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return float(found[0]), torch.tensor(found[1:], dtype=z.dtype).view(c, -1)


@pytest.mark.parametrize("personal", KINDS, ids=str)
@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError(), Huber(delta=0.5), Poisson()], ids=str)
def test_terms_are_those_of_a_slow_minimiser(loss: Loss, personal: Personal) -> None:
    graph = labelled(loss)
    prediction = Prediction(graph, MLP((5,)), APPNP(0.2, 4), personal=personal)
    W = {n: 3 * w for n, w in prediction.model.initial_weights(torch.Generator().manual_seed(1), graph.x.dtype).items()}
    plain = Prediction(graph, MLP((5,)), APPNP(0.2, 4)).logits_of(W)
    h = prediction.model.encoder(W, graph.x)
    terms = prediction.personal(plain, h)
    for k in range(graph.num_clients):
        rows = (graph.client == k) & graph.mask(Split.TRAIN)
        columns = (graph.x[rows], graph.y[rows], graph.weight[rows], plain[rows], h[rows])
        g, B = slow_terms(graph.loss, personal, *columns)
        assert float(terms.gate[k]) == pytest.approx(g, abs=2e-5)
        torch.testing.assert_close(terms.B[k], B, rtol=1e-4, atol=2e-5)
        mine = graph.client == k
        expected = g * plain[mine] + (1 - g) * h[mine] + personal.features(graph.x[mine]) @ B.T
        torch.testing.assert_close(prediction.logits_of(W)[mine], expected, rtol=1e-4, atol=2e-4)
    if math.isfinite(personal.gate_strength):
        assert len(terms.gate.unique()) > 1
        assert bool(((terms.gate >= 0) & (terms.gate <= 1)).all())


def oracle_rounds(federation: Federation, rounds: int = 3) -> Weights:
    """Rounds of a loop over clients that see the engine's terms of their own and nothing else of its algebra."""
    graph, gamma, personal = federation.graph, federation.aggregator.gamma, federation.prediction.personal.personal
    powers = dense_powers(graph, len(gamma) - 1)
    if not federation.aggregator.learnable:
        powers = torch.tensordot(gamma, powers, 1)[None]
    loss, c = graph.loss, graph.num_classes

    def residual(z: Tensor, y: Tensor) -> Tensor:
        return loss.residual(z[None], loss.targets(y[None], c, z.dtype))[0]

    clients = [Client(graph, k, federation.encoder, residual) for k in range(graph.num_clients)]

    def own_terms(client: Client, W: Weights, own: Tensor, C: Tensor) -> tuple[float, Tensor]:
        rows = (graph.client == client.number) & graph.mask(Split.TRAIN)
        terms = federation.resume(0, W, federation.progress(federation.start())).terms
        assert terms is not None
        return float(terms.gate[client.number]), personal.features(graph.x[rows]) @ terms.B[client.number].T

    W = federation.start().weights
    for number in range(rounds):
        schedule = federation.schedule
        who = (schedule.who_shares(number).tolist(), schedule.who_trains(number).tolist())
        batches = schedule.batches_by_client(number)
        compensated = federation.estimator == "compensated"
        W = run_round(clients, powers, W, *who, batches, 0.1, compensated=compensated, personal=own_terms)
    return W


def engine_rounds(federation: Federation, rounds: int = 3) -> Weights:
    state = federation.start()
    for _ in range(rounds):
        state, _ = federation.round(state)
    return state.weights


@pytest.mark.parametrize("personal", KINDS[:3], ids=str)
@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_all_paths_take_the_steps_of_a_loop_over_clients(task: str, personal: Personal) -> None:
    graph = labelled(CrossEntropy(), task)
    expected = oracle_rounds(build(graph, personal))
    for path in ("dual", "primal", "general"):
        torch.testing.assert_close(engine_rounds(build(graph, personal, path=path)), expected, rtol=1e-9, atol=1e-11)
    without = engine_rounds(build(graph, Shared()))
    assert float((without["W1"] - expected["W1"]).abs().max()) > 1e-5


@pytest.mark.parametrize("personal", KINDS[:3], ids=str)
@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_the_linear_path_takes_the_same_steps(task: str, personal: Personal) -> None:
    graph = labelled(CrossEntropy(), task)
    found, expected = (
        Federation(graph, MLP(()), APPNP(0.2, 4), local=LocalTraining(0.1, 3), path=path, personal=personal)
        for path in ("linear", "general")
    )
    torch.testing.assert_close(engine_rounds(found), engine_rounds(expected), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": "v1"},
        {"aggregator": Identity()},
        {"aggregator": LearnablePolynomial(0.2, 3)},
        {"local": LocalTraining(0.1, 3, 2, momentum=0.0, proximal=0.0)},
    ],
    ids=str,
)
def test_variants_take_the_steps_of_a_loop_over_clients(options: dict[str, Any]) -> None:
    federation = build(labelled(SquaredError()), OwnSlopes(0.5, 2.0), **options)
    torch.testing.assert_close(engine_rounds(federation), oracle_rounds(federation), rtol=1e-9, atol=1e-11)


def test_a_gate_counts_the_same_where_rows_are_too_many_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = labelled(CrossEntropy())
    some = {"participation": Participation(train=0.5)}
    kept = [engine_rounds(build(graph, Gate(0.3), path=path, **some)) for path in ("dual", "primal")]
    monkeypatch.setattr(neighbourhood, "ROW_ENTRIES", 1)
    for path, expected in zip(("dual", "primal"), kept, strict=True):
        found = engine_rounds(build(graph, Gate(0.3), path=path, **some))
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("personal", KINDS, ids=str)
@pytest.mark.parametrize("loss", [CrossEntropy(), Poisson()], ids=str)
def test_one_step_a_round_descends_what_is_left_once_every_client_did_its_best(loss: Loss, personal: Personal) -> None:
    graph = labelled(loss)
    federation = build(graph, personal, local=LocalTraining(0.1, 1))
    W = federation.start().weights
    state, _ = federation.round(federation.start())
    step = {name: (W[name] - state.weights[name]) / 0.1 for name in W}
    torch.testing.assert_close(step, gradient(federation, W), rtol=1e-8, atol=1e-10)

    def left(W: Weights) -> float:
        """Mean over clients of what their penalised training loss is at best."""
        now = federation.resume(0, W, federation.progress(federation.start()))
        assert now.terms is not None
        strength = torch.tensor(personal.strengths(graph.num_features), dtype=torch.float64)
        penalty = 0.5 * (now.terms.B**2 * strength).sum((1, 2))
        if math.isfinite(personal.gate_strength):
            penalty = penalty + 0.5 * personal.gate_strength * (now.terms.gate - 1) ** 2
        trained = graph.training_clients
        n = graph.counts(graph.mask(Split.TRAIN))[trained]
        return float(objective(graph, federation.logits(now)) + (penalty[trained] / n).mean())

    draw = torch.Generator().manual_seed(3)
    for _ in range(3):
        direction = {name: torch.randn(w.shape, generator=draw, dtype=w.dtype) for name, w in W.items()}
        ends = [left({name: W[name] + e * direction[name] for name in W}) for e in (1e-4, -1e-4)]
        expected = sum(float((step[name] * direction[name]).sum()) for name in W)
        assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_limits_are_known() -> None:
    graph = labelled(SquaredError())
    strong = engine_rounds(build(graph, OwnSlopes(1e12, 1e12)))
    torch.testing.assert_close(strong, engine_rounds(build(graph, Shared())), rtol=1e-6, atol=1e-8)
    open_gate = engine_rounds(build(graph, Gate(1e12, math.inf)))
    torch.testing.assert_close(open_gate, engine_rounds(build(graph, Shared())), rtol=1e-6, atol=1e-8)
    prediction = Prediction(graph, MLP((5,)), APPNP(0.2, 4), personal=OwnLevel(3.0))
    W = prediction.model.initial_weights(torch.Generator().manual_seed(1), torch.float64)
    plain = Prediction(graph, MLP((5,)), APPNP(0.2, 4)).logits_of(W)
    target = graph.loss.targets(graph.y, 1, torch.float64)
    terms = prediction.personal(plain, plain)
    for k in range(graph.num_clients):
        rows = (graph.client == k) & graph.mask(Split.TRAIN)
        n = int(rows.sum())
        shrunk = n / (n + 3.0) * (target - plain)[rows].mean()
        assert float(terms.B[k]) == pytest.approx(float(shrunk), abs=1e-9)


def test_a_client_without_training_samples_has_the_shared_model() -> None:
    graph = labelled(CrossEntropy(), "snc")
    prediction = Prediction(graph, MLP((5,)), APPNP(0.2, 4), personal=Gate())
    W = prediction.model.initial_weights(torch.Generator().manual_seed(1), torch.float64)
    plain = Prediction(graph, MLP((5,)), APPNP(0.2, 4)).logits_of(W)
    others = ~torch.isin(graph.client, graph.training_clients)
    assert torch.equal(prediction.logits_of(W)[others], plain[others])
    assert not torch.equal(prediction.logits_of(W)[~others], plain[~others])


def test_labels_of_other_samples_and_clients_never_enter_a_clients_terms() -> None:
    graph = labelled(CrossEntropy())
    prediction = Prediction(graph, MLP((5,)), APPNP(0.2, 4), personal=OwnSlopes())
    W = prediction.model.initial_weights(torch.Generator().manual_seed(1), torch.float64)
    mine = (graph.client == 4) & graph.mask(Split.TRAIN)
    for changed in (graph.client != 4, ~graph.mask(Split.TRAIN)):
        other = replace(graph, y=torch.where(changed & ~mine, (graph.y + 1) % 3, graph.y))
        found = Prediction(other, MLP((5,)), APPNP(0.2, 4), personal=OwnSlopes()).logits_of(W)
        assert torch.equal(found[graph.client == 4], prediction.logits_of(W)[graph.client == 4])


@dataclass(frozen=True)
class OwnTrend(Personal):
    """A term over the first feature alone, as somebody else might add it."""

    def features(self, x: Tensor) -> Tensor:
        return x[:, :1]

    def strengths(self, num_features: int) -> tuple[float, ...]:
        return (1.0,)


def test_a_term_from_outside_trains_on_every_path() -> None:
    graph = labelled(CrossEntropy())
    expected = oracle_rounds(build(graph, OwnTrend()))
    for path in ("dual", "primal", "general"):
        torch.testing.assert_close(engine_rounds(build(graph, OwnTrend(), path=path)), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: OwnLevel(0.0), "strength must be positive and finite, got 0.0"),
        (lambda: OwnSlopes(level=math.inf), "level must be positive and finite, got inf"),
        (lambda: OwnSlopes(slopes=-1.0), "slopes must be positive and finite, got -1.0"),
        (lambda: Gate(strength=math.inf), "strength must be positive and finite, got inf"),
        (lambda: Gate(level=0.0), "level must be positive, got 0.0"),
        (
            lambda: build(random_clients("sc"), OwnLevel(), estimator="exact"),
            r"personal must be Shared for the exact estimator, got OwnLevel\(strength=None\)",
        ),
        (
            lambda: build(random_clients("sc"), OwnLevel(), protection=Protection(steps=StepNoise(clip=1.0))),
            "personal must be Shared where local steps are DP-SGD's",
        ),
        (
            lambda: build(random_clients("sc"), Gate(), aggregator=LearnablePolynomial()),
            "personal must be without a gate where the aggregator is learnable",
        ),
        (
            lambda: build(random_clients("sc"), Gate(), aggregator=Identity()),
            "personal must be without a gate where nobody has neighbours",
        ),
        (
            lambda: build(random_clients("sc"), Gate(), protection=Protection(jacobian=Gaussian(std=1.0, clip=1.0))),
            "personal must be without a gate where Jacobians carry noise",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()


def strength_of(loss: Loss, z: Tensor, target: Tensor, weight: Tensor) -> float:
    return level_strength(loss, sums(loss, z, target, weight))


def slow_strength(loss: Loss, z: Tensor, target: Tensor, clients: Tensor) -> tuple[float, float]:
    """τ² and φ by loops over pairs of different samples of a client."""
    r, h = loss.residual(z.clone(), target), loss.curvature(z, target)
    products = curvatures = 0.0
    for s in range(len(z)):
        for t in range(len(z)):
            if s != t and clients[s] == clients[t]:
                products += float(r[s] @ r[t])
                curvatures += float((h[s] * h[t].T).sum())
    variance = max(0.0, products / curvatures)
    own = sum(float((one * one.T).sum()) for one in h)
    left = float(r.square().sum()) - variance * own
    return variance, max(0.0, left / float(h.diagonal(dim1=1, dim2=2).sum()))


@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError(), Poisson()], ids=str)
def test_the_estimated_strength_is_that_of_loops_over_pairs(loss: Loss) -> None:
    draw = torch.Generator().manual_seed(0)
    K, n, c = 7, 5, 1 if loss.of_numbers else 3
    z = torch.randn(K, n, c, generator=draw, dtype=torch.float64)
    y = torch.arange(K)[:, None].expand(K, n) % 3
    target = loss.targets(y if c == 3 else y.double(), c, torch.float64)
    there = torch.rand(K, n, generator=draw) < 0.7
    there[:, 0] = True
    found = moments(loss, sums(loss, z, target, there.double()))
    owner = torch.arange(K)[:, None].expand(K, n)[there]
    assert found == pytest.approx(slow_strength(loss, z[there], target[there], owner))


@pytest.mark.parametrize("spread", [0.3, 1.0, 2.0])
def test_the_estimated_strength_is_that_of_the_law_that_levels_were_drawn_from(spread: float) -> None:
    """Margins with levels of deviation √2 σ have λ = 1/σ²; numbers with σ and noise s have λ = s²/σ²."""
    draw = torch.Generator().manual_seed(1)
    K, n = 20_000, 6
    b = spread * torch.randn(K, 1, 2, generator=draw, dtype=torch.float64)
    z = torch.zeros(K, n, 2, dtype=torch.float64)
    y = (torch.rand(K, n, generator=draw) < torch.sigmoid(b[..., 1] - b[..., 0])).long()
    target = CrossEntropy().targets(y, 2, torch.float64)
    weight = torch.ones(K, n, dtype=torch.float64)
    assert strength_of(CrossEntropy(), z, target, weight) == pytest.approx(1 / spread**2, rel=0.12)
    numbers = b[..., :1] + 0.5 * torch.randn(K, n, 1, generator=draw, dtype=torch.float64)
    found = strength_of(SquaredError(), z[..., :1], numbers, weight)
    assert found == pytest.approx(0.25 / spread**2, rel=0.05) or found == LEAST
    nothing = torch.randn(K, n, 1, generator=draw, dtype=torch.float64)
    assert strength_of(SquaredError(), z[..., :1], nothing, weight) > 100
    alone = torch.ones(K, 1, dtype=torch.float64)
    assert strength_of(SquaredError(), z[:, :1, :1], numbers[:, :1], alone) == MOST


def test_a_round_with_estimated_levels_is_that_of_their_strength_and_counts_their_sums() -> None:
    graph = labelled(CrossEntropy())
    federation = build(graph, OwnLevel())
    state = federation.start()
    z, training = federation.prediction.logits_of(state.weights), federation.schedule.training
    plain = Prediction(graph, MLP((5,)), APPNP(0.2, 4)).logits_of(state.weights)
    weight = (training.weight * training.present).double()
    strength = strength_of(graph.loss, plain[training.sample], training.target.double(), weight)
    assert LEAST < strength < MOST
    given = build(graph, OwnLevel(strength))
    torch.testing.assert_close(given.prediction.logits_of(state.weights), z)
    after, report = federation.round(state)
    expected, other = given.round(given.start())
    torch.testing.assert_close(after.weights, expected.weights)
    sent = len(training) * 5 * graph.x.element_size()
    assert report.traffic.total_up - other.traffic.total_up == sent


@pytest.mark.parametrize(("loss", "most"), [(Huber(), 0.1), (Poisson(), 0.5)], ids=str)
def test_what_all_levels_have_in_common_goes_to_the_bias(loss: Loss, most: float) -> None:
    """From a bias that is off by 6 at everybody; a small given λ leaves it there, as levels make up for it."""
    graph = labelled(loss)
    left = {}
    for personal in (OwnLevel(), OwnLevel(LEAST)):
        federation = Federation(
            graph, MLP((5,), bias=True), Identity(), local=LocalTraining(0.1, 3), weighting="samples", personal=personal
        )
        weights = federation.start().weights
        state = federation.start(weights | {"b2": weights["b2"] - 6})
        for _ in range(40):
            state, report = federation.round(state)
        assert state.terms is not None
        left[personal] = abs(float(state.terms.B[graph.training_clients].mean()))
        sent = {"LevelSums", "LevelStrength"} & (set(report.traffic.up) | set(report.traffic.down))
        assert len(sent) == 2 * personal.estimates
    assert left[OwnLevel()] < most < 1 < left[OwnLevel(LEAST)], left


def test_the_common_level_is_newtons_step_and_told_only_where_there_is_a_bias_for_it() -> None:
    graph = labelled(SquaredError())
    federation = Federation(graph, MLP((5,), bias=True), personal=OwnLevel())
    state = federation.start()
    assert state.terms is not None
    z = Prediction(graph, MLP((5,), bias=True)).logits_of(state.weights)
    rows = graph.mask(Split.TRAIN)
    mean = float((graph.loss.targets(graph.y, 1, z.dtype) - z)[rows].mean())
    assert state.terms.common == pytest.approx(max(-1, min(1, mean)))
    training = federation.schedule.training
    offset = federation.prediction.personal.offset(state.terms, training)
    assert isinstance(offset, Offset)
    expected = state.terms.B[training.clients] - state.terms.common
    torch.testing.assert_close(offset.value, expected.expand_as(offset.value))
    assert set(state.terms.of_clients) == {"gate", "B"}
    for other in (build(graph, OwnLevel()), build(labelled(CrossEntropy()), OwnLevel()), build(graph, OwnLevel(2.0))):
        terms = other.start().terms
        assert terms is not None
        assert terms.common == 0


def test_two_classes_by_their_margin_are_what_the_softmax_says(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = labelled(CrossEntropy())
    two = replace(graph, y=graph.y.clamp(max=1), num_classes=2)
    for personal in (OwnLevel(0.7), OwnLevel(), OwnSlopes(0.5, 2.0), Gate(0.3, 0.8)):
        prediction = Prediction(two, MLP((5,)), APPNP(0.2, 4), personal=personal)
        W = prediction.model.initial_weights(torch.Generator().manual_seed(1), torch.float64)
        found = prediction.logits_of(W)
        with monkeypatch.context() as slow:
            slow.setattr(PersonalFit, "_by_margin", False)
            torch.testing.assert_close(prediction.logits_of(W), found, rtol=1e-7, atol=1e-7)


def test_an_estimate_is_refused_where_uploads_are_protected() -> None:
    noisy = Protection(hidden=Gaussian(std=1.0, clip=1.0))
    with pytest.raises(InputError, match="personal must be given a strength where uploads are protected"):
        build(random_clients("sc"), OwnLevel(), protection=noisy)
    build(random_clients("sc"), OwnLevel(2.0), protection=noisy)


@pytest.mark.parametrize("personal", [OwnLevel(), OwnSlopes(0.5, 2.0), Gate(0.3, 0.8)], ids=str)
def test_clients_fitted_by_size_have_the_terms_of_all_in_one_padded_table(
    personal: Personal, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = labelled(CrossEntropy())
    draw = torch.Generator().manual_seed(2)
    z, h = torch.randn(2, graph.num_samples, 3, generator=draw, dtype=torch.float64)
    found = PersonalFit(personal, graph)(z, h)
    parts = TrainingSet.of(graph).by_size()
    assert len(parts) > 1
    assert all(bool((2 * part.counts > part.sample.shape[1]).all()) for part in parts)
    monkeypatch.setattr(TrainingSet, "by_size", lambda whole: [whole])
    whole = PersonalFit(personal, graph)(z, h)
    torch.testing.assert_close((found.gate, found.B), (whole.gate, whole.B), rtol=1e-6, atol=1e-7)
