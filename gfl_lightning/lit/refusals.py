"""What Lightning offers and rounds of a federation cannot do: refused with a sentence, never ignored."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.callbacks import (
    BatchSizeFinder,
    Callback,
    Checkpoint,
    DeviceStatsMonitor,
    GradientAccumulationScheduler,
    LearningRateFinder,
    LearningRateMonitor,
    ModelSummary,
    ProgressBar,
    StochasticWeightAveraging,
    Timer,
    WeightAveraging,
)
from pytorch_lightning.cli import SaveConfigCallback
from pytorch_lightning.plugins import CheckpointIO

from gfl_lightning.checks import InputError, require
from gfl_lightning.lit.protecting import ProtectingCallback

ONE_PROCESS = "the federation is simulated in one process"
ONLY_DEFAULT = {
    "max_epochs": "a fit is one epoch of rounds; max_steps is their number",
    "min_epochs": "a fit is one epoch of rounds; min_steps is their least number",
    "accumulate_grad_batches": "a round averages models, it accumulates no gradients",
    "gradient_clip_val": "clients take plain SGD steps",
    "gradient_clip_algorithm": "clients take plain SGD steps",
    "overfit_batches": "a round always uses the training samples of its clients",
    "reload_dataloaders_every_n_epochs": "the data of the clients do not change during a fit",
    "limit_test_batches": "a test is of all test samples",
    "limit_predict_batches": "predictions are of all samples",
    "num_nodes": ONE_PROCESS,
    "use_distributed_sampler": ONE_PROCESS,
    "sync_batchnorm": ONE_PROCESS,
    "num_sanity_val_steps": "every round evaluates the model anyway",
    "check_val_every_n_epoch": "a fit is one epoch; val_check_interval counts rounds",
    "barebones": "rounds log and validate",
    "model_registry": "models are kept in files",
}
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "accumulate_grad_batches": (1,),
    "overfit_batches": (0, 0.0),
    "reload_dataloaders_every_n_epochs": (0,),
    "limit_test_batches": (1.0,),
    "limit_predict_batches": (1.0,),
    "num_nodes": (1,),
    "use_distributed_sampler": (True,),
    "sync_batchnorm": (False,),
    "num_sanity_val_steps": (0,),
    "check_val_every_n_epoch": (1,),
    "barebones": (False,),
}
CALLBACKS: dict[type[Callback], str] = {
    StochasticWeightAveraging: "it averages over epochs, of which a fit has one; WeightAveraging averages over rounds",
    GradientAccumulationScheduler: "a round averages models, it accumulates no gradients",
    BatchSizeFinder: "the batch size belongs to the clients (model.local.batch_size)",
    LearningRateFinder: "it needs a loss per batch; the clients' rate is model.local.lr",
}
NEVER_STOPPING = (
    *(Checkpoint, DeviceStatsMonitor, LearningRateMonitor, ModelSummary, ProgressBar, WeightAveraging),
    SaveConfigCallback,
)
PROFILERS = ("simple", "advanced", "pytorch")
ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")
PRECISIONS = (None, "32-true", "64-true", 32, 64, "32", "64")


def refuse_what_rounds_cannot_do(options: dict[str, Any]) -> None:
    """Check the arguments of a Trainer."""
    for name, why in ONLY_DEFAULT.items():
        value = options.get(name)
        if value is not None and value not in NEUTRAL.get(name, ()):
            raise InputError(f"{name} must be left out, as {why}, got {value!r}.")
    accelerator = options.get("accelerator", "auto")
    require(accelerator in ACCELERATORS, "accelerator", f"be one of {', '.join(ACCELERATORS)}", accelerator)
    devices, precision = options.get("devices", "auto"), options.get("precision")
    require(devices in ("auto", 1, "1", [0]), "devices", f"be 1, as {ONE_PROCESS}", devices)
    require(precision in PRECISIONS, "precision", "be 32-true or 64-true", precision)
    strategy = options.get("strategy", "auto")
    require(strategy in ("auto", "single_device"), "strategy", f"be auto, as {ONE_PROCESS}", strategy)
    duration, profiler = options.get("max_time"), options.get("profiler")
    require(duration is None or _is_a_duration(duration), "max_time", "be days:hours:minutes:seconds", duration)
    known = not isinstance(profiler, str) or profiler in PROFILERS
    require(known, "profiler", f"be one of {', '.join(PROFILERS)}, or a profiler", profiler)
    limit = options.get("limit_train_batches")
    whole = options.get("max_steps") != -1 or limit is None or isinstance(limit, int) or limit == 1.0
    require(whole, "limit_train_batches", "be a number of rounds where max_steps sets none", limit)
    least, most = options.get("min_steps"), options.get("max_steps", -1)
    fits = least is None or (least >= 0 and (most == -1 or least <= most))
    require(fits, "min_steps", f"lie between 0 and max_steps ({most})", least)
    limit = options.get("limit_val_batches")
    require(limit in (None, 0, 1), "limit_val_batches", "be 0 or 1.0, none or all of the validation samples", limit)
    plugins = options.get("plugins") or []
    plugins = plugins if isinstance(plugins, list) else [plugins]
    saving = all(isinstance(plugin, CheckpointIO) for plugin in plugins)
    require(saving, "plugins", f"be ones that write checkpoints (CheckpointIO), as {ONE_PROCESS}", plugins)
    for callback in options.get("callbacks") or []:
        for kind, why in CALLBACKS.items():
            if isinstance(callback, kind):
                raise InputError(f"callbacks must not hold {kind.__name__}, as {why}, got {type(callback).__name__}.")


def _is_a_duration(value: Any) -> bool:
    try:
        Timer(duration=value)
    except Exception:
        return False
    return True


def require_an_end(trainer: Any, module: Any) -> None:
    """Refuse a fit that nothing would ever end: no number of rounds, no time, no budget, no callback that may stop."""
    limited = trainer.max_steps != -1 or isinstance(trainer.limit_train_batches, int) or module.is_budgeted
    stopping = [one for one in trainer.callbacks if not isinstance(one, (*NEVER_STOPPING, ProtectingCallback))]
    rule = "be a number of rounds where neither max_time, nor a budget, nor a callback ends the fit"
    require(limited or bool(stopping), "max_steps", rule, trainer.max_steps)
