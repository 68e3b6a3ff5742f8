"""Configurations laid over each other may add to what protects a federation and restate it, but not lose it.

A list in YAML replaces the list before it: ``--config private.yaml --config other.yaml`` would train without the DP of
the first file if the second one has callbacks of its own. The command line is therefore read again up to each option
that can replace the callbacks, by the parser that reads the whole of it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from pydoc import locate
from typing import Any, get_type_hints

from jsonargparse import Namespace

from gfl_lightning.checks import InputError, require
from gfl_lightning.graphs.records.as_they_are import AsTheyAre
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.protection import Protection

NAMING = ("-c", "--c", "--t", "--m")  # how options begin that can protect: configurations, the trainer's, the model's
REPLACING = ("--config", "--trainer.callbacks", "--model", "--model.protection", "--model.guarantee", "--model.records")


def refuse_lost_protection(read: Callable[[Sequence[str]], Any], args: Sequence[str], whole: Any) -> None:
    """Refuse a command line on which an option drops what a protecting callback or the model before it states.

    Args:
        read: the configuration that a command line describes.
        args: the command line.
        whole: that of the whole of it.
    """
    kept = stated_by(whole)
    for end in reversed([place for place, argument in enumerate(args) if _replaces(argument)]):
        before = args[:end]
        lost = stated_by(read(before)) - kept if any(one.startswith(NAMING) for one in before) else set()
        told = {one for one in lost if one.partition(" ")[0] not in lost - {one}}
        require(
            not lost,
            "model.protection" if any(one.startswith("model.") for one in lost) else "trainer.callbacks",
            f"keep {', '.join(sorted(told))}: append to the list with trainer.callbacks+ instead of replacing it, or "
            "state protection with the model (model.protection)",
            " ".join(args[end : end + 1 if "=" in args[end] else end + 2]),
        )


def stated_by(config: Any) -> set[str]:
    """What the callbacks and the model of a configuration state about protection."""
    return statements(_top(config.get("trainer")).get("callbacks")) | statements_of_the_model(config.get("model"))


def statements_of_the_model(model: Any) -> set[str]:
    """The fields of protection and guarantee that a model states otherwise than by default, and records that promise.

    >>> sorted(statements_of_the_model({"init_args": {"protection": {"unit": "sample"}, "guarantee": {"delta": 1e-5}}}))
    ['model.protection.unit']
    >>> sorted(statements_of_the_model({"init_args": {"protection": {"hidden": {"std": 1.0}}}}))
    ['model.protection.hidden', 'model.protection.hidden noise']
    """
    options = _top(_top(model).get("init_args"))
    records = _made(options.get("records"), AsTheyAre)
    found = {"model.records"} if isinstance(records, Records) and math.isfinite(records.epsilon) else set()
    for role, kind in (("protection", Protection), ("guarantee", Guarantee)):
        stated = _top(options.get(role))
        for name, value in _top(stated.get("init_args", stated)).items():
            default = vars(kind()).get(name)
            made = _made(value, type(default))
            if made != default:
                found |= {f"model.{role}.{name}", *(f"model.{role}.{name} {one}" for one in _strengths(made))}
    return found


def refuse_options_before_files(args: Sequence[str]) -> None:
    """Refuse an option before a configuration file, whose values would replace it."""
    files = [place for place, argument in enumerate(args) if argument.split("=")[0] in ("-c", "--config")]
    before = args[: files[-1]] if files else []
    lost = [one for one in before if one.startswith(("--model", "--data", "--trainer"))]
    require(not lost, "options", "stand after --config, whose values would replace them", lost[0] if lost else None)


def statements(callbacks: Any) -> set[str]:
    """What the protecting ones among the callbacks of a configuration state: their classes, and options set.

    >>> noise = {"class_path": "callbacks.DPSGD", "init_args": {"clip": 2.0, "noise_multiplier": 0.0}}
    >>> sorted(statements([noise, {"class_path": "pytorch_lightning.callbacks.Timer"}]))
    ['DPSGD', 'DPSGD.clip']
    """
    listed = callbacks if isinstance(callbacks, list) else [] if callbacks is None else [callbacks]
    found: set[str] = set()
    for callback in listed:
        kind: Any = locate(callback["class_path"])
        kind = kind if isinstance(kind, type) else get_type_hints(kind).get("return")
        if isinstance(kind, type) and issubclass(kind, ProtectingCallback):
            defaults = inspect.signature(kind).parameters
            options = _top(callback.get("init_args"))
            made = {name: _made(value, type(defaults[name].default)) for name, value in options.items()}
            stated = {name for name, value in made.items() if value != defaults[name].default}
            stated |= {f"{name} {one}" for name, value in made.items() for one in _strengths(value)}
            kinds = [one.__name__ for one in kind.__mro__ if issubclass(one, ProtectingCallback)][:-1]
            found |= {*kinds, *(f"{one}.{name}" for one in kinds for name in stated)}
    return found


def _replaces(argument: str) -> bool:
    """Whether an argument, possibly abbreviated, can replace what was stated about protection before it."""
    name = argument.split("=", maxsplit=1)[0]
    within = name.startswith(tuple(f"{one}." for one in REPLACING if one != "--model"))
    return argument.startswith("-c") or within or (name[:2] == "--" and any(one.startswith(name) for one in REPLACING))


def _made(value: Any, usual: type) -> Any:
    """An option's value; a part from its class and options, the ``usual`` class where it names none.

    What is on the way to be replaced need not make sense: it stays as it is.
    """
    part = _top(value)
    if not part:
        return value
    kind: Any = locate(part["class_path"]) if "class_path" in part else usual
    options = _top(part.get("init_args") if "class_path" in part else part)
    try:
        return kind(**{name: _made(one, dict) for name, one in options.items()})
    except (InputError, TypeError):
        return value


def _strengths(part: Any) -> set[str]:
    """What a mechanism does to uploads, which another one in its place has to do too."""
    if not isinstance(part, (Mechanism, StepNoise)):
        return set()
    noise = part.noise_multiplier if isinstance(part, StepNoise) else part.spread
    return {name for name, there in (("noise", noise > 0), ("bound", math.isfinite(part.clip))) if there}


def _top(value: Any) -> dict[str, Any]:
    """What a configuration holds directly; nothing where it is a plain value."""
    return value.as_dict() if isinstance(value, Namespace) else value if isinstance(value, dict) else {}
