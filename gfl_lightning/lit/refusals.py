"""What Lightning offers and rounds of a federation cannot do: refused with a sentence, never ignored."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.callbacks import (
    BatchSizeFinder,
    Callback,
    GradientAccumulationScheduler,
    LearningRateFinder,
    StochasticWeightAveraging,
)

from gfl_lightning.checks import InputError, require

ONLY_DEFAULT = {
    "max_epochs": "a fit is one epoch of rounds; max_steps is their number",
    "min_epochs": "a fit is one epoch of rounds; min_steps is their least number",
    "accumulate_grad_batches": "a round averages models, it accumulates no gradients",
    "gradient_clip_val": "clients take plain SGD steps",
    "gradient_clip_algorithm": "clients take plain SGD steps",
    "overfit_batches": "a round always uses the training samples of its clients",
    "reload_dataloaders_every_n_epochs": "the data of the clients do not change during a fit",
    "num_nodes": "the federation is simulated in one process",
    "num_sanity_val_steps": "every round evaluates the model anyway",
    "check_val_every_n_epoch": "a fit is one epoch; val_check_interval counts rounds",
}
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "accumulate_grad_batches": (1,),
    "overfit_batches": (0, 0.0),
    "reload_dataloaders_every_n_epochs": (0,),
    "num_nodes": (1,),
    "num_sanity_val_steps": (0,),
    "check_val_every_n_epoch": (1,),
}
CALLBACKS: dict[type[Callback], str] = {
    StochasticWeightAveraging: "it averages over epochs, of which a fit has one; WeightAveraging averages over rounds",
    GradientAccumulationScheduler: "a round averages models, it accumulates no gradients",
    BatchSizeFinder: "the batch size belongs to the clients (model batch_size)",
    LearningRateFinder: "it needs a loss per batch; the clients' rate is model lr",
}
PRECISIONS = (None, "32-true", "64-true", 32, 64, "32", "64")


def refuse_what_rounds_cannot_do(options: dict[str, Any]) -> None:
    """Check the arguments of a Trainer."""
    for name, why in ONLY_DEFAULT.items():
        value = options.get(name)
        if value is not None and value not in NEUTRAL.get(name, ()):
            raise InputError(f"{name} must be left out, as {why}, got {value!r}.")
    devices = options.get("devices", "auto")
    require(devices in ("auto", 1, "1", [0]), "devices", "be 1, as the federation is simulated in one process", devices)
    precision = options.get("precision")
    require(precision in PRECISIONS, "precision", "be 32-true or 64-true", precision)
    strategy = options.get("strategy", "auto")
    require(
        strategy in ("auto", "single_device"),
        "strategy",
        "be auto, as the federation is simulated in one process",
        strategy,
    )
    require(not options.get("barebones"), "barebones", "be left out, as rounds log and validate", True)
    limit = options.get("limit_train_batches")
    whole = options.get("max_steps") != -1 or limit is None or isinstance(limit, int) or limit == 1.0
    require(whole, "limit_train_batches", "be a number of rounds where max_steps sets none", limit)
    for callback in options.get("callbacks") or []:
        for kind, why in CALLBACKS.items():
            if isinstance(callback, kind):
                raise InputError(f"callbacks must not hold {kind.__name__}, as {why}, got {type(callback).__name__}.")
