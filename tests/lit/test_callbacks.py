"""Lightning's own callbacks and loggers, unchanged, each with the effect that a user expects."""

from __future__ import annotations

import csv
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
from lit_types import Fit
from pytorch_lightning.callbacks import (
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
    RichProgressBar,
    TQDMProgressBar,
    WeightAveraging,
)
from pytorch_lightning.loggers import CSVLogger
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.models.encoders.mlp import MLP


def losses(folder: Path) -> list[float]:
    with (folder / "metrics.csv").open() as stream:
        return [float(row["val_loss"]) for row in csv.DictReader(stream)]


def test_csv_logger_has_a_row_for_every_round(fit: Fit, tmp_path: Path) -> None:
    logger = CSVLogger(str(tmp_path))
    _, module = fit(max_steps=23, logger=logger)
    with (Path(logger.log_dir) / "metrics.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["step"]) for row in rows] == list(range(23))
    assert float(rows[-1]["val_loss"]) == pytest.approx(module.round_metrics["val_loss"])
    assert {"train_loss", "val_accuracy", "bytes_up", "bytes_down", "clients_trained", "lr"} <= set(rows[0])
    assert not any(name.startswith("test_") for name in rows[0])


def test_log_every_n_steps(fit: Fit, tmp_path: Path) -> None:
    logger = CSVLogger(str(tmp_path))
    fit(max_steps=20, logger=logger, log_every_n_steps=5)
    assert len(losses(Path(logger.log_dir))) == 4


def test_model_checkpoint_keeps_the_best_by_validation_loss(fit: Fit, data: DNC, tmp_path: Path) -> None:
    logger = CSVLogger(str(tmp_path))
    best = ModelCheckpoint(tmp_path / "best", monitor="val_loss")
    options = {"logger": logger, "callbacks": [best], "enable_checkpointing": True}
    _, module = fit(
        model={"lr_scheduler": partial(StepLR, step_size=20, gamma=60)}, max_steps=22, val_check_interval=1, **options
    )
    curve = losses(Path(logger.log_dir))
    lowest = min(range(22), key=curve.__getitem__)
    assert lowest < 21, "the rate explodes after round 20, so that the best round is not the last"
    assert best.best_model_path.endswith(f"step={lowest + 1}.ckpt")
    assert (module.best.round, module.best.val_loss) == (lowest + 1, pytest.approx(curve[lowest]))
    kept = torch.load(best.best_model_path, weights_only=True)
    for name, weight in module.best.weights.items():
        assert torch.equal(kept["state_dict"][name], weight)
    loaded = GFL.load_from_checkpoint(best.best_model_path, weights_only=True)
    assert torch.equal(loaded.get_parameter("W1"), module.best.weights["W1"])


def test_model_checkpoint_every_n_rounds_and_last(fit: Fit, tmp_path: Path) -> None:
    every = ModelCheckpoint(tmp_path / "every", every_n_train_steps=4, save_top_k=-1, save_last=True)
    fit(max_steps=10, callbacks=[every], enable_checkpointing=True)
    names = sorted(file.name for file in (tmp_path / "every").iterdir())
    assert names == ["epoch=0-step=4.ckpt", "epoch=0-step=8.ckpt", "last.ckpt", "last.previous.ckpt"]


def test_model_checkpoint_by_time(fit: Fit, tmp_path: Path) -> None:
    timed = ModelCheckpoint(tmp_path / "timed", train_time_interval=timedelta(seconds=0), save_top_k=-1)
    fit(max_steps=3, callbacks=[timed], enable_checkpointing=True)
    assert len(list((tmp_path / "timed").iterdir())) == 3


@pytest.mark.parametrize("every", [1, 2, 5])
def test_early_stopping(fit: Fit, every: int) -> None:
    trainer, _ = fit(max_steps=50, val_check_interval=every, callbacks=[EarlyStopping("val_loss", patience=3)])
    assert trainer.global_step == 50
    hard_to_please = EarlyStopping("val_loss", min_delta=1.0, patience=3)
    trainer, _ = fit(max_steps=50, val_check_interval=every, callbacks=[hard_to_please])
    assert trainer.global_step == 4 * every


def test_learning_rate_monitor_with_a_scheduler_on_the_clients_rate(fit: Fit, tmp_path: Path) -> None:
    logger = CSVLogger(str(tmp_path))
    monitor = LearningRateMonitor()
    schedule = partial(StepLR, step_size=2, gamma=0.1)
    _, module = fit(
        model={"local": LocalTraining(lr=1.0, steps=2), "lr_scheduler": schedule},
        max_steps=5,
        logger=logger,
        callbacks=[monitor],
    )
    with (Path(logger.log_dir) / "metrics.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    used = [float(row["lr"]) for row in rows if row["lr"]]
    assert used == pytest.approx([1.0, 1.0, 0.1, 0.1, 0.01])
    watched = [float(row["lr-SGD"]) for row in rows if row["lr-SGD"]]
    assert watched == pytest.approx(used)
    _, constant = fit(model={"local": LocalTraining(lr=1.0, steps=2)}, max_steps=5)
    assert not torch.equal(constant.state.weights["W1"], module.state.weights["W1"])


def test_plateau_scheduler_follows_the_validation_loss(fit: Fit) -> None:
    schedule = partial(ReduceLROnPlateau, factor=0.5, patience=0, threshold=10.0)
    trainer, _ = fit(
        model={"local": LocalTraining(lr=1.0, steps=2), "lr_scheduler": schedule}, max_steps=6, val_check_interval=2
    )
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.125)


def test_tqdm_bar_counts_rounds_and_shows_the_validation_loss(fit: Fit, capsys: pytest.CaptureFixture[str]) -> None:
    fit(max_steps=12, callbacks=[TQDMProgressBar(refresh_rate=1)], enable_progress_bar=True)
    shown = capsys.readouterr().out
    assert "12/12" in shown
    assert "val_loss=" in shown
    assert "Validation" not in shown


def test_rich_bar_counts_rounds_and_shows_the_validation_loss(fit: Fit, capsys: pytest.CaptureFixture[str]) -> None:
    fit(max_steps=12, callbacks=[RichProgressBar(leave=True)], enable_progress_bar=True)
    shown = capsys.readouterr().out
    assert "12/12" in shown
    assert "val_loss" in shown


def test_weight_averaging_averages_over_rounds_and_is_what_validation_sees(fit: Fit) -> None:
    from gfl_lightning.federated.federation import Federation  # noqa: PLC0415

    averaging = WeightAveraging()
    trainer, module = fit(max_steps=6, val_check_interval=6, callbacks=[averaging])
    federation: Federation = module.federation
    state, weights = federation.start(GFL(10, 2, MLP((8,))).current_weights()), []
    for _ in range(6):
        state, report = federation.round(state)
        weights.append(state.weights["W1"])
    assert torch.equal(module.state.weights["W1"], weights[-1])
    torch.testing.assert_close(module.get_parameter("W1").detach(), torch.stack(weights).mean(0))
    averaged = module.evaluate()["val"].loss
    assert float(trainer.callback_metrics["val_loss"]) == pytest.approx(averaged, rel=1e-6)
    assert averaged != pytest.approx(report.metrics["val"].loss, rel=1e-6)
