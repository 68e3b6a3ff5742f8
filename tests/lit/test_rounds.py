"""The loop of rounds: canaries for Lightning's protected loops, limits, hooks, and what is refused."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
import torch
from lit_types import Fit
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import (
    BatchSizeFinder,
    Callback,
    GradientAccumulationScheduler,
    LearningRateFinder,
    StochasticWeightAveraging,
    Timer,
)
from pytorch_lightning.loops.fit_loop import _FitLoop
from pytorch_lightning.plugins import MixedPrecision

from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.round_loop import RoundLoop
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.encoders.mlp import MLP


class Recorder(Callback):
    """Writes down every hook of a fit with the number of rounds at that moment."""

    HOOKS = (
        "on_fit_start",
        "on_train_start",
        "on_train_epoch_start",
        "on_train_batch_start",
        "on_train_batch_end",
        "on_validation_start",
        "on_validation_epoch_start",
        "on_validation_epoch_end",
        "on_validation_end",
        "on_train_epoch_end",
        "on_train_end",
        "on_fit_end",
    )

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def __getattribute__(self, name: str) -> Any:
        if name in Recorder.HOOKS:
            return lambda trainer, *_: self.seen.append((name, trainer.global_step))
        return super().__getattribute__(name)


def test_a_fit_is_the_bare_federation(fit: Fit, data: DNC) -> None:
    local = LocalTraining(0.5, 2, 1)
    trainer, module = fit(max_steps=7, model={"local": local, "seed": 3})
    federation = Federation(data.graph, MLP((8,)), local=local, seed=3)
    state = federation.start()
    for _ in range(7):
        state, report = federation.round(state)
    assert trainer.global_step == 7
    for name, weight in state.weights.items():
        assert torch.equal(module.get_parameter(name), weight)
    assert trainer.callback_metrics["val_loss"] == pytest.approx(report.metrics["val"].loss)
    assert module.round_metrics["train_accuracy"] == report.metrics["train"].accuracy


def test_hooks_fire_once_a_round_in_lightnings_order(fit: Fit) -> None:
    recorder = Recorder()
    fit(max_steps=5, val_check_interval=2, callbacks=[recorder])
    event = ["on_validation_start", "on_validation_epoch_start", "on_validation_epoch_end", "on_validation_end"]
    expected: list[tuple[str, int]] = [(h, 0) for h in ("on_fit_start", "on_train_start", "on_train_epoch_start")]
    for number in range(5):
        expected += [("on_train_batch_start", number), ("on_train_batch_end", number + 1)]
        if number in (1, 3, 4):
            expected += [(hook, number + 1) for hook in event]
    expected += [(h, 5) for h in ("on_train_epoch_end", "on_train_end", "on_fit_end")]
    assert recorder.seen == expected


def test_the_loop_stands_where_lightning_looks_for_it() -> None:
    trainer = FederatedTrainer(logger=False, accelerator="cpu")
    assert isinstance(trainer, Trainer)
    assert isinstance(trainer.fit_loop, RoundLoop)
    assert isinstance(trainer.fit_loop, _FitLoop)
    assert trainer.max_steps == 300


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ({"max_steps": 4}, 4),
        ({"max_steps": 9, "limit_train_batches": 3}, 3),
        ({"max_steps": 10, "limit_train_batches": 0.5}, 5),
        ({"max_steps": -1, "limit_train_batches": 6}, 6),
        ({"max_steps": 4, "limit_val_batches": 0}, 4),
        ({"fast_dev_run": True}, 1),
        ({"fast_dev_run": 3}, 3),
    ],
)
def test_limits_on_rounds(fit: Fit, options: dict[str, Any], rounds: int) -> None:
    trainer, module = fit(**options)
    assert trainer.global_step == rounds
    assert module.state.round == rounds


def test_a_callback_may_stop_the_fit_but_not_before_min_steps(fit: Fit) -> None:
    class StopAtTwo(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
            trainer.should_stop = trainer.global_step >= 2

    assert fit(max_steps=9, callbacks=[StopAtTwo()])[0].global_step == 2
    assert fit(max_steps=9, min_steps=5, callbacks=[StopAtTwo()])[0].global_step == 5


def test_max_time_and_timer_stop_the_fit(fit: Fit) -> None:
    trainer, _ = fit(max_steps=-1, max_time=timedelta(seconds=0.3))
    assert 1 <= trainer.global_step < 10_000
    timer = Timer(timedelta(seconds=0.2))
    assert fit(max_steps=-1, callbacks=[timer])[0].global_step >= 1
    assert timer.time_elapsed("train") >= 0.2


def test_a_logged_value_of_a_callback_reaches_lightnings_metrics(fit: Fit) -> None:
    class Logs(Callback):
        def on_train_batch_end(self, trainer: Trainer, pl_module: GFL, *_: object) -> None:
            pl_module.log("mine", float(trainer.global_step), on_step=True)

        def on_validation_epoch_end(self, trainer: Trainer, pl_module: GFL) -> None:  # type: ignore[override]
            pl_module.log("at_validation", 10.0 * trainer.global_step)

        def on_train_epoch_end(self, trainer: Trainer, pl_module: GFL) -> None:  # type: ignore[override]
            pl_module.log("at_the_end", 7.0)

    trainer, _ = fit(max_steps=3, callbacks=[Logs()], val_check_interval=2)
    assert float(trainer.callback_metrics["mine"]) == 3
    assert float(trainer.callback_metrics["at_validation"]) == 30
    assert float(trainer.callback_metrics["at_the_end"]) == 7


def test_precision_and_seed_are_the_trainers_and_the_models(fit: Fit) -> None:
    _, double = fit(max_steps=3, precision="64-true")
    assert double.state.weights["W1"].dtype == torch.float64
    _, single = fit(max_steps=3)
    torch.testing.assert_close(single.state.weights["W1"].double(), double.state.weights["W1"], rtol=1e-3, atol=1e-5)
    _, other = fit(max_steps=3, model={"seed": 1})
    assert not torch.equal(single.state.weights["W1"], other.state.weights["W1"])


def test_a_trained_model_may_be_tested_on_other_data_and_trained_anew(fit: Fit) -> None:
    trainer, module = fit(max_steps=20)
    first = module.best
    found = [trainer.test(module, DNC(60, 10, repetition=r), verbose=False)[0]["test_loss"] for r in (0, 1)]
    assert found[0] != found[1]
    again = FederatedTrainer(
        max_steps=2, logger=False, accelerator="cpu", enable_progress_bar=False, enable_checkpointing=False
    )
    again.fit(module, datamodule=DNC(60, 10, repetition=1))
    assert module.best.round <= 2
    assert module.best is not first


def test_training_needs_no_gradient_and_leaves_none(fit: Fit) -> None:
    _, module = fit(max_steps=2)
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_epochs": 3}, "max_epochs must be left out, as a fit is one epoch of rounds; max_steps is their number"),
        ({"accumulate_grad_batches": 2}, "accumulate_grad_batches must be left out, as a round averages models"),
        ({"gradient_clip_val": 1.0}, "gradient_clip_val must be left out, as clients take plain SGD steps, got 1.0"),
        ({"overfit_batches": 1}, "overfit_batches must be left out"),
        (
            {"limit_val_batches": 0.5},
            "limit_val_batches must be 0 or 1.0, none or all of the validation samples, got 0.5",
        ),
        ({"limit_test_batches": 0}, "limit_test_batches must be left out, as a test is of all test samples, got 0"),
        ({"sync_batchnorm": True}, "sync_batchnorm must be left out, as the federation is simulated in one process"),
        ({"plugins": [MixedPrecision("bf16-mixed", "cpu")]}, "plugins must be ones that write checkpoints"),
        ({"devices": 2}, "devices must be 1, as the federation is simulated in one process, got 2"),
        ({"precision": "bf16-mixed"}, "precision must be 32-true or 64-true, got 'bf16-mixed'"),
        ({"max_steps": 0}, "max_steps must be at least 1, or -1 for no limit, got 0"),
        ({"max_steps": None}, "max_steps must be at least 1, or -1 for no limit, got None"),
        ({"val_check_interval": 0.5}, "val_check_interval must be a number of rounds of at least 1, got 0.5"),
        ({"callbacks": [StochasticWeightAveraging(0.1)]}, "callbacks must not hold StochasticWeightAveraging, as it"),
        ({"callbacks": [GradientAccumulationScheduler({1: 2})]}, "callbacks must not hold GradientAccumulationSch"),
        ({"callbacks": BatchSizeFinder()}, "callbacks must not hold BatchSizeFinder, as the batch size belongs"),
        ({"callbacks": [LearningRateFinder()]}, "callbacks must not hold LearningRateFinder"),
    ],
)
def test_what_rounds_cannot_do_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        FederatedTrainer(**options)


def test_data_without_a_client_graph_are_refused() -> None:
    trainer = FederatedTrainer(logger=False, accelerator="cpu", enable_progress_bar=False, enable_checkpointing=False)
    with pytest.raises(InputError, match="datamodule must be a data set, which makes a client graph, got None"):
        trainer.fit(GFL(10, 2), train_dataloaders=[0], val_dataloaders=[0])


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
