"""What a checkpoint holds, place by place: checked before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.engine.best import Best

Rule = tuple[Callable[[Any], bool], str]


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _named(kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A dictionary from texts to what ``kind`` accepts."""
    return lambda value: isinstance(value, dict) and all(type(k) is str and kind(v) for k, v in value.items())


def _weight(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and bool(torch.isfinite(value).all())


def _made(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"rounds"} and _count(value["rounds"])


def _listed(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is str for one in value)


def _a_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _a_version(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("2.") and value.replace(".", "").isalnum()


ALWAYS: dict[str, Rule] = {
    "global_step": (_count, "a number of rounds"),
    "pytorch-lightning_version": (_a_version, "a version of Lightning 2"),
    "state_dict": (_named(_weight), "finite weights by name"),
    "loops": (_a_dict, "the state of loops"),
    "hyper_parameters": (_named(lambda value: True), "options by name"),
    "rounds": (_a_dict, "the progress of rounds"),
}
WHOLE: dict[str, Rule] = {
    "callbacks": (_named(lambda value: True), "states of callbacks by name"),
    "optimizer_states": (_listed, "states of optimizers"),
    "lr_schedulers": (_listed, "states of schedulers"),
}
ROUNDS: dict[str, Rule] = {
    "best": (_named(lambda value: True), "the best round"),
    "totals": (_named(_number), "sums by name"),
    "seconds": (_number, "a time"),
    "metrics": (_named(_number), "metrics by name"),
    "curve": (
        lambda value: isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] == 2,
        "two losses a round",
    ),
    "progress": (_named(lambda value: True), "the engine's progress"),
    "scheduler": (_named(lambda value: not isinstance(value, Tensor)), "a scheduler in words"),
    "stopped": (lambda value: value is None or _texts(value), "the callbacks that asked to stop"),
}
LOOPS: dict[str, Rule] = {"fit_loop": (_made, "a number of rounds")}
BEST: dict[str, Rule] = {
    "round": (_count, "a number of rounds"),
    "val_loss": (_number, "a loss"),
    "weights": (_named(_weight), "finite weights by name"),
    "client_loss": (lambda value: isinstance(value, Tensor) and value.ndim == 1, "a loss for each client"),
    "shared": (_weight, "finite representations"),
}


def _terms(value: Any) -> bool:
    named = _named(_weight)(value) and set(value) == {"gate", "B"}
    return named and value["gate"].ndim == 1 and value["B"].ndim == 3 and len(value["gate"]) == len(value["B"])


KEPT: dict[str, Rule] = {
    "shared": (lambda value: _weight(value) and value.ndim in (1, 2), "what each client shared last"),
    "terms": (_terms, "a gate and a term of each client"),
    "chosen": (_a_dict, "a part by its class"),
    **dict.fromkeys(("records", "noise_key"), (lambda value: value is None or type(value) is str, "a name")),
    "records_gaps": (_texts, "what was told beside records"),
}
PROTECTION: dict[str, Rule] = {
    **dict.fromkeys(("stated", "in_force", "guarantee"), (_a_dict, "a part by its class")),
    "seed": (_count, "a seed"),
    **dict.fromkeys(("run", "settings"), (lambda value: type(value) is str, "a text")),
    **dict.fromkeys(("noise_key", "data"), (lambda value: value is None or type(value) is str, "a name")),
    "claims": (lambda value: type(value) is bool, "whether something is claimed"),
    "evaluated": (_texts, "marks of evaluations"),
}
MIXTURE: dict[str, Rule] = {
    "weight": (lambda value: _weight(value) and value.ndim == 2, "how much each client heeds each model"),
    "tuned": (lambda value: isinstance(value, list) and all(_named(_weight)(one) for one in value), "clients' models"),
    "fedavg": (_named(_weight), "finite weights by name"),
    "terms": (_named(_weight), "finite terms by name"),
    "mark": (lambda value: isinstance(value, str), "a text"),
}


def require_layout(checkpoint: Any, argument: str) -> None:
    """Refuse what is no checkpoint of a model trained in rounds; ``argument`` is what named it."""
    _require(checkpoint, "the checkpoint", ALWAYS, argument)
    if "half_width" in checkpoint:
        _require(checkpoint, "the checkpoint", {"half_width": (_number, "the half width of intervals")}, argument)
    for name, rule in KEPT.items():
        if name in checkpoint:
            _require(checkpoint, "the checkpoint", {name: rule}, argument)
    if checkpoint.get("protection") is not None:
        _require(checkpoint["protection"], "the protection", PROTECTION, argument)
    if "mixture" in checkpoint:
        _require_mixture(checkpoint["mixture"], checkpoint["state_dict"], argument)
    if set(WHOLE) & set(checkpoint):
        _require(checkpoint, "the checkpoint", WHOLE, argument)
    rounds, done = checkpoint["rounds"], checkpoint["global_step"]
    _require(rounds, "rounds", ROUNDS, argument)
    _require(rounds["best"], "rounds.best", BEST, argument)
    names = {field.name for field in fields(Best)}
    require(set(rounds["best"]) == names, argument, f"have a best round of {', '.join(names)}", sorted(rounds["best"]))
    best, weights = rounds["best"]["weights"], checkpoint["state_dict"]
    same = not best or shapes_of(best) == shapes_of(weights)
    require(same, argument, "have a best round of the shapes of its weights", shapes_of(best))
    require(
        rounds["best"]["round"] <= done, argument, f"have its best among its {done} rounds", rounds["best"]["round"]
    )
    _require(checkpoint["loops"], "loops", LOOPS, argument)
    made = checkpoint["loops"]["fit_loop"]["rounds"]
    require(made == done, argument, f"count {done} rounds wherever it does", made)


def _require_mixture(found: Any, weights: Mapping[str, Tensor], argument: str) -> None:
    """Refuse a mix of models that are not all there, or of other shapes than the model's."""
    _require(found, "the mixture", MIXTURE, argument)
    clients, models = found["weight"].shape
    given, terms = shapes_of(found["fedavg"]), shapes_of(found["terms"])
    require(models == 1 + len(found["tuned"]) + bool(given), argument, "hold each model of its mixture", models)
    known = shapes_of(weights)
    of_one = {name: shape for name, shape in known.items() if not given or name in given}
    require(not given or given == of_one, argument, "have FedAvg's weights in the shapes of its own", given)
    here = not given or (set(terms) == {"gate", "B"} and all(shape[:1] == (clients,) for shape in terms.values()))
    require(here, argument, "have FedAvg's terms of every client", terms)
    for one in found["tuned"]:
        shapes = shapes_of(one)
        same = bool(shapes) and all(shape == (clients, *known.get(name, ())) for name, shape in shapes.items())
        require(same, argument, "have models of clients in the shapes of its weights", shapes)


def shapes_of(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of each weight.

    >>> shapes_of({"W": torch.zeros(2, 3)})
    {'W': (2, 3)}
    """
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def _require(found: Any, place: str, rules: Mapping[str, Rule], argument: str) -> None:
    require(isinstance(found, dict), argument, f"hold {place} by name", type(found).__name__)
    for name, (fits, words) in rules.items():
        require(name in found, argument, f"hold {name} in {place} ({words})", sorted(map(str, found)))
        require(fits(found[name]), argument, f"hold {words} as {name} in {place}", type(found[name]).__name__)
