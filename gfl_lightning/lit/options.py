"""The options of a module as plain nested data: what its checkpoint keeps, and what it is built from again."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pydoc import locate
from typing import Any, NoReturn, get_args, get_type_hints

from gfl_lightning.checks import InputError, require
from gfl_lightning.parts import CLASS, OPTIONS, describe, typed

NOT_KEPT = ("self", "__class__", "lr_scheduler")
FREE = ("path",)  # how something is computed, not what comes out: a resumed run may choose it anew
MODULE = "_class_path"
Difference = tuple[str, Any, Any]


def described(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a module's constructor, its ``locals()``, as plain data, with the module's class.

    >>> from gfl_lightning.models.aggregators.sgc import SGC
    >>> described({"aggregator": SGC(k=3), "seed": 1, "lr_scheduler": print})["aggregator"]["init_args"]
    {'k': 3}
    """
    kind = type(arguments["self"]) if "self" in arguments else None
    if kind is not None:
        require_parts(kind, arguments)
    module = {} if kind is None else {MODULE: f"{kind.__module__}.{kind.__qualname__}"}
    return module | {name: describe(value) for name, value in arguments.items() if name not in NOT_KEPT}


def require_parts(module: type, arguments: Mapping[str, Any]) -> None:
    """Refuse ``None`` where the module's constructor has a part or a value."""
    for name, kind in get_type_hints(module.__init__).items():  # type: ignore[misc]
        absent = name in arguments and arguments[name] is None
        require(not absent or type(None) in get_args(kind), name, "be given, or left out for its default", None)


def rebuilt(module: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that were described, each as its type in the module's constructor; anything else is refused."""
    kinds = get_type_hints(module.__init__)  # type: ignore[misc]
    known = {name for name in inspect.signature(module).parameters if name not in NOT_KEPT}
    given = {name: value for name, value in options.items() if name != MODULE}
    rule = f"hold the options {', '.join(sorted(known))} of {module.__name__}"
    require(set(given) == known, "a checkpoint", rule, ", ".join(sorted(given)))
    return {name: typed(value, kinds[name], name) for name, value in given.items()}


def differences(said: Any, kept: Any, name: str) -> Iterator[Difference]:
    """Where options that someone states differ from those that a checkpoint keeps: name, kept value, stated value.

    Both are nested as a configuration nests them; what is not stated differs in nothing.

    >>> kept = {"class_path": "gfl_lightning.models.aggregators.sgc.SGC", "init_args": {"k": 3}}
    >>> list(differences({"class_path": "gfl_lightning.SGC", "init_args": {"k": 2}}, kept, "model.aggregator"))
    [('model.aggregator.k', 3, 2)]
    """
    if isinstance(said, Mapping) and isinstance(kept, Mapping):
        if CLASS in said and CLASS in kept and _whole_path(said[CLASS]) != kept[CLASS]:
            yield name, kept[CLASS].rpartition(".")[2], said[CLASS].rpartition(".")[2]
            return
        inner, known = (
            said.get(OPTIONS, {}) if CLASS in said else said,
            kept.get(OPTIONS, {}) if CLASS in kept else kept,
        )
        for option in inner:
            if option in known:
                yield from differences(inner[option], known[option], f"{name}.{option}")
    elif _plain(said) != _plain(kept):
        yield name, kept, said


def overlaid(kept: Any, said: Any) -> Any:
    """What a checkpoint keeps, with what someone states in its place."""
    if not (isinstance(said, Mapping) and isinstance(kept, Mapping)):
        return said
    inner, known = said.get(OPTIONS, {}) if CLASS in said else said, kept.get(OPTIONS, {}) if CLASS in kept else kept
    options = {**known, **{name: overlaid(known.get(name), value) for name, value in inner.items()}}
    return {CLASS: kept[CLASS], OPTIONS: options} if CLASS in kept else options


def refuse(difference: Difference) -> NoReturn:
    """Refuse an option that differs from a checkpoint's."""
    name, kept, said = difference
    raise InputError(f"{name} must be left out or be {kept!r}, as in the checkpoint, got {said!r}.")


def _whole_path(path: str) -> str:
    """Where a class that someone states is at home; what a checkpoint keeps is written that way, and never imported."""
    kind: Any = locate(path)
    return path if kind is None else f"{kind.__module__}.{kind.__qualname__}"


def _plain(value: Any) -> Any:
    """A value as it compares: lists and tuples alike, a path as its text."""
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else describe(value)
