"""Parts as plain data: a frozen dataclass, possibly of others, described by its class and options, and built again.

A description is what a checkpoint keeps. Building one imports nothing: only classes that are already loaded, and that
are what is asked for, can come of it.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

from gfl_lightning.checks import InputError, require

CLASS, OPTIONS = "class_path", "init_args"
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
    require(set(given) <= known, found.__name__, f"have options among {', '.join(sorted(known))}", sorted(given))
    return found(**{name: _value(value, kinds[name]) for name, value in given.items()})  # type: ignore[return-value]


def _value(value: Any, kind: Any) -> Any:
    """An option: a part of its own kind, or plain."""
    if isinstance(value, dict) and CLASS in value:
        require(isinstance(kind, type), "an option", f"be {kind}", value[CLASS])
        return build(value, kind)
    return tuple(value) if isinstance(value, list) else value


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _subclasses(kind: type) -> set[type]:
    """A class and everything that is derived from it so far."""
    derived: list[type] = type.__subclasses__(kind)
    return {kind}.union(*(_subclasses(one) for one in derived))
