"""What every baseline owes the one Lightning adapter and the one loop of studies: the contract of engines."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from typing import Any

import pytest
import torch
from baseline_builders import ENGINES, engine, same_bits

from gfl_lightning.baselines.central import CentralDescent
from gfl_lightning.baselines.central_predictor import CentralPredictor
from gfl_lightning.baselines.local_mlps import LocalModels
from gfl_lightning.baselines.local_predictor import LocalPredictor
from gfl_lightning.checks import InputError
from gfl_lightning.engine.engine import DivergedError, Engine, Predictor, Report
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.models.encoders.encoder import Weights


def rounds(trainer: Engine[Any], state: Any, number: int) -> tuple[Any, list[Report]]:
    reports = []
    for _ in range(number):
        state, report = trainer.round(state)
        reports.append(report)
    return state, reports


def saved_and_loaded(content: Any) -> Any:
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def derived(state: Any) -> Weights:
    """What a state holds beside the weights, as tensors by name."""
    return state.gradient if hasattr(state, "gradient") else {"client_loss": state.client_loss.nan_to_num(-1)}


def mean_losses(graph: ClientGraph, logits: torch.Tensor) -> dict[str, float]:
    """Σ w_s loss_s / n of each split, by its definition."""
    loss = graph.weight * -logits.log_softmax(1)[torch.arange(graph.num_samples), graph.y.clamp_min(0)]
    return {part.name.lower(): float(loss[graph.mask(part)].mean()) for part in (Split.TRAIN, Split.VAL, Split.TEST)}


@pytest.mark.parametrize("name", ENGINES)
def test_a_resumed_training_goes_on_with_the_same_bits(name: str) -> None:
    first = engine(name)
    middle, _ = rounds(first, first.start(), 5)
    end, reports = rounds(first, middle, 6)
    second = engine(name)
    weights, progress = saved_and_loaded((middle.weights, first.progress(middle)))
    resumed = second.resume(5, weights, progress)
    assert resumed.round == 5
    assert same_bits(derived(resumed), derived(middle))
    again, repeated = rounds(second, resumed, 6)
    assert again.round == end.round == 11
    assert same_bits(again.weights, end.weights)
    assert repeated == reports


@pytest.mark.parametrize("name", ENGINES)
def test_a_round_is_a_function_of_the_state(name: str) -> None:
    trainer = engine(name)
    state, _ = rounds(trainer, trainer.start(), 2)
    kept = {weight: value.clone() for weight, value in state.weights.items()}
    first, report = trainer.round(state)
    rounds(trainer, trainer.start(), 4)
    second, other = trainer.round(state)
    assert same_bits(state.weights, kept)
    assert same_bits(first.weights, second.weights)
    assert not same_bits(first.weights, state.weights)
    assert report == other


@pytest.mark.parametrize("name", ENGINES)
def test_weights_predict_what_their_round_reported(name: str) -> None:
    trainer = engine(name)
    state, reports = rounds(trainer, trainer.start(), 4)
    assert [report.round for report in reports] == [1, 2, 3, 4]
    assert trainer.metrics_of(state.weights, 4) == reports[-1].metrics
    expected = mean_losses(trainer.graph, trainer.logits_of(state.weights))
    assert {part: found.loss for part, found in reports[-1].metrics.items()} == pytest.approx(expected, rel=1e-5)
    train = [report.metrics["train"].loss for report in reports]
    assert train == sorted(train, reverse=True)


@pytest.mark.parametrize("name", ENGINES)
def test_logits_are_differentiable_in_the_weights(name: str) -> None:
    """Central differences along a random direction, in double precision."""
    trainer = engine(name, dtype=torch.float64)
    weights, generator = trainer.start().weights, torch.Generator().manual_seed(3)
    along = {n: torch.randn(W.shape, generator=generator, dtype=torch.float64) for n, W in weights.items()}
    slope = torch.func.jvp(trainer.logits_of, (weights,), (along,))[1]
    ahead, behind = (trainer.logits_of({n: W + sign * 1e-6 * along[n] for n, W in weights.items()}) for sign in (1, -1))
    torch.testing.assert_close(slope, (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ENGINES)
def test_a_rate_replaces_that_of_the_engine_for_one_round(name: str) -> None:
    slow, fast = engine(name, lr=0.05), engine(name, lr=0.4)
    expected, _ = slow.round(slow.start())
    found, _ = fast.round(fast.start(), lr=0.05)
    assert same_bits(found.weights, expected.weights)
    assert not same_bits(fast.round(fast.start())[0].weights, expected.weights)


@pytest.mark.parametrize("name", ENGINES)
def test_same_seed_same_bits(name: str) -> None:
    ends = [rounds(trainer := engine(name, seed), trainer.start(), 6)[0].weights for seed in (1, 1, 2)]
    assert same_bits(ends[0], ends[1])
    assert not same_bits(ends[0], ends[2])


@pytest.mark.parametrize("name", ENGINES)
def test_the_graph_sets_the_precision(name: str) -> None:
    """The start is the same to the bit, and a round in double precision agrees with one in single."""
    single, double = engine(name), engine(name, dtype=torch.float64)
    assert same_bits({n: W.double() for n, W in single.start().weights.items()}, double.start().weights)
    start = {n: W.double() for n, W in single.start().weights.items()}
    for trainer in (single, double):
        state, _ = rounds(trainer, trainer.start(start), 5)
        assert {W.dtype for W in state.weights.values()} == {trainer.graph.x.dtype}
    torch.testing.assert_close(
        rounds(single, single.start(), 5)[0].weights, state.weights, rtol=1e-3, atol=1e-4, check_dtype=False
    )


@pytest.mark.parametrize("name", ENGINES)
def test_given_weights_stay_the_callers(name: str) -> None:
    trainer = engine(name)
    given = {n: W.clone() for n, W in trainer.start().weights.items()}
    state = trainer.start(given)
    for weight in given.values():
        weight.zero_()
    assert same_bits(state.weights, trainer.start().weights)
    assert copy.deepcopy(trainer) is trainer


@pytest.mark.parametrize("name", ENGINES)
def test_a_rate_that_diverges_is_refused_with_the_last_good_state(name: str) -> None:
    trainer = engine(name, lr=1e30)
    state = trainer.start()
    text = r"^lr must be small enough for a training loss that does not explode, got 1e\+30: in round 1 the loss became"
    with pytest.raises(DivergedError, match=text) as stopped:
        rounds(trainer, state, 30)
    last = stopped.value.state
    assert last is not None
    expected, _ = rounds(trainer, state, last.round)
    assert same_bits(last.weights, expected.weights)


@pytest.mark.parametrize("name", ENGINES)
def test_unfit_weights_are_refused(name: str) -> None:
    trainer = engine(name)
    weights = trainer.start().weights
    which = next(iter(weights))
    misshapen = {**weights, which: weights[which].mT}
    endless = {**weights, which: torch.full_like(weights[which], torch.inf)}
    for use in (trainer.start, trainer.logits_of, lambda given: trainer.resume(3, given, {})):
        with pytest.raises(InputError, match=r"^weights must have the shapes \{"):
            use(misshapen)
        with pytest.raises(InputError, match=f"^weights must be finite, got 'non-finite entries in {which}'."):
            use(endless)


@pytest.mark.parametrize("name", ENGINES)
def test_other_samples_may_be_predicted_where_nobody_trains(name: str) -> None:
    """A predictor on the graph without training samples gives the engine's logits."""
    trainer = engine(name)
    state, _ = rounds(trainer, trainer.start(), 3)
    graph = trainer.graph
    bare = replace(graph, split=torch.where(graph.mask(Split.TRAIN), int(Split.NONE), graph.split))
    predictor: Predictor
    if isinstance(trainer, LocalModels):
        with pytest.raises(
            InputError, match=r"^graph must give every client a training sample, as each trains a model"
        ):
            LocalModels(bare, 8)
        predictor = LocalPredictor(bare, 8)
    else:
        assert isinstance(trainer, CentralDescent)
        with pytest.raises(InputError, match=r"^graph must have at least one training sample, got ClientGraph"):
            CentralDescent(bare, trainer.architecture)
        predictor = CentralPredictor(bare, trainer.architecture)
    assert torch.equal(predictor.logits_of(state.weights), trainer.logits_of(state.weights))


@pytest.mark.parametrize("name", ENGINES)
def test_a_round_needs_no_gradients_switched_on(name: str) -> None:
    trainer = engine(name)
    expected, _ = rounds(trainer, trainer.start(), 2)
    with torch.no_grad():
        found, _ = rounds(trainer, trainer.start(), 2)
    assert same_bits(found.weights, expected.weights)
    assert not any(W.requires_grad for W in found.weights.values())
