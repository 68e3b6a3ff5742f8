"""Parts as plain data: a frozen dataclass, possibly of others, described by its class and options, and built again.

A description is what a checkpoint keeps. Building one imports nothing: only classes that are already loaded, and that
are what is asked for, can come of it.
"""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gfl_lightning.checks import InputError, require

CLASS, OPTIONS = "class_path", "init_args"
PLAIN: dict[Any, tuple[type, ...]] = {
    type(None): (type(None),),
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (str,),
    Path: (str,),
}
T = TypeVar("T")


def describe(part: Any) -> Any:
    """A part as nested dictionaries, lists, numbers and text.

    >>> from gfl_lightning.models.aggregators.sgc import SGC
    >>> describe(SGC(k=3))
    {'class_path': 'gfl_lightning.models.aggregators.sgc.SGC', 'init_args': {'k': 3}}
    """
    if is_dataclass(part) and not isinstance(part, type):
        options = {field.name: describe(getattr(part, field.name)) for field in fields(part) if field.init}
        return {CLASS: _path(type(part)), OPTIONS: options}
    if isinstance(part, (tuple, list)):
        return [describe(one) for one in part]
    if isinstance(part, dict):
        return {name: describe(one) for name, one in part.items()}
    if isinstance(part, Path):
        return str(part)
    plain = part is None or isinstance(part, (bool, int, float, str))
    require(plain, "a part", "be a dataclass of plain values and of other parts", part)
    return part


def build(description: Any, kind: type[T]) -> T:
    """The part that was described, which must be a ``kind``.

    >>> from gfl_lightning.models.aggregators.aggregator import Aggregator
    >>> from gfl_lightning.models.aggregators.sgc import SGC
    >>> build(describe(SGC(k=3)), Aggregator)
    SGC(k=3)
    """
    path = description.get(CLASS) if isinstance(description, dict) else None
    found = {_path(one): one for one in _subclasses(kind)}.get(str(path))
    if found is None or not is_dataclass(found):
        raise InputError(
            f"a part that is read must be a {kind.__name__} of this program or of a loaded module, got {path!r}."
        )
    given, kinds = description.get(OPTIONS, {}), get_type_hints(found)
    known = {field.name for field in fields(found) if field.init}
    require(isinstance(given, dict), found.__name__, "have options by name", given)
    require(set(given) <= known, found.__name__, f"have options among {', '.join(sorted(known))}", list(given))
    return found(**{name: typed(value, kinds[name], name) for name, value in given.items()})  # type: ignore[return-value]


def typed(value: Any, kind: Any, name: str = "an option") -> Any:
    """A plain value that was read, as an option of a type; a value of another type is refused.

    >>> typed([8, 4], tuple[int, ...])
    (8, 4)
    >>> typed("8", int, "hidden")
    Traceback (most recent call last):
    gfl_lightning.checks.InputError: hidden must be <class 'int'>, got '8'.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return typed(value, _member(value, inner, name), name)
    if origin is Literal:
        require(any(type(value) is type(one) and value == one for one in inner), name, f"be one of {inner}", value)
        return value
    if origin in (tuple, list):
        require(isinstance(value, (list, tuple)), name, f"be {kind}", value)
        return origin(typed(one, inner[0], name) for one in value)
    if origin is dict:
        require(isinstance(value, dict), name, f"be {kind}", value)
        return {typed(key, inner[0], name): typed(one, inner[1], name) for key, one in value.items()}
    if kind in PLAIN:
        require(type(value) in PLAIN[kind], name, f"be {kind}", value)
        return value
    require(isinstance(kind, type), name, f"be {kind}", value)
    return build(value, kind)


def _member(value: Any, kinds: tuple[Any, ...], name: str) -> Any:
    """The one among the types of a union that a value may have."""
    for kind in kinds:
        try:
            typed(value, kind, name)
        except InputError:
            continue
        return kind
    raise InputError(f"{name} must be one of {', '.join(map(str, kinds))}, got {value!r}.")


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _subclasses(kind: type) -> set[type]:
    """A class and everything that is derived from it so far."""
    derived: list[type] = type.__subclasses__(kind)
    return {kind}.union(*(_subclasses(one) for one in derived))
