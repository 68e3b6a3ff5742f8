"""What sites may say beside their messages: counts, sums and names, checked before the server reckons with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gfl_lightning.deploy import phases
from gfl_lightning.deploy.rules import BlobError

Notes = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """What the answer of a site is an answer to.

    Args:
        notes: of the server's envelope.
        clients: names of the site's clients.
        public: features of which nothing need be told but whether values are missing.
    """

    notes: Notes
    clients: Collection[str] = ()
    public: Collection[str] = ()


def require_notes(phase: str, said: Notes, asked: Asked) -> None:
    """Refuse notes of a phase that do not answer what was asked.

    >>> require_notes("squares", {"age": 3.5}, Asked({"means": {"age": 50.0}}))
    >>> require_notes("squares", {"age": -1.0}, Asked({"means": {"age": 50.0}}))
    Traceback (most recent call last):
    gfl_lightning.deploy.rules.BlobError: age must be a number of at least 0, got -1.0.
    """
    check = CHECKS.get(phase)
    if check is not None:
        check(said, asked)


def _columns(said: Notes, asked: Asked) -> None:
    _names(said, {"features", "labels"})
    for column, kind in _mapping(said, "features").items():
        _require(kind in (None, "numeric", "categorical"), f"the kind of {column}", "be numeric or categorical", kind)
    plain = all(isinstance(one, (str, int, float)) for one in _list(said, "labels"))
    _require(plain, "labels", "be text or numbers", said["labels"])


def _sums(said: Notes, asked: Asked) -> None:
    _names(said, {"features", "classes", "training", "validation", "most"})
    features, training = _mapping(said, "features"), _mapping(said, "training")
    _names(features, asked.notes["features"])
    for name, kind in asked.notes["features"].items():
        _feature(name, "public" if name in asked.public else kind, _mapping(features, name))
    classes = _list(said, "classes")
    wanted = len(asked.notes["classes"])
    fits = len(classes) == wanted and all(map(_is_count, classes))
    _require(fits, "classes", f"be {wanted} counts", classes)
    _names(training, asked.clients)
    for name in training:
        _count(training, name)
    for name in ("validation", "most"):
        _count(said, name)


def _feature(name: str, kind: str, parts: dict[str, Any]) -> None:
    told = {"public": set(), "numeric": {"count", "sum"}, "categorical": {"categories"}}[kind]
    _names(parts, {"some_missing", *told})
    _require(type(parts["some_missing"]) is bool, f"some_missing of {name}", "be true or false", parts["some_missing"])
    if kind == "numeric":
        _count(parts, "count")
        _require(_is_number(parts["sum"]), f"sum of {name}", "be a number", parts["sum"])
    if kind == "categorical":
        text = all(isinstance(one, str) for one in _list(parts, "categories"))
        _require(text, f"categories of {name}", "be text", parts["categories"])


def _squares(said: Notes, asked: Asked) -> None:
    _names(said, asked.notes["means"])
    for name, value in said.items():
        _require(_is_number(value) and value >= 0, name, "be a number of at least 0", value)


def _train(said: Notes, asked: Asked) -> None:
    _require(set(said) <= {"trained", "skipped"}, "notes", "name trained and skipped", sorted(said))
    for name in said:
        _count(said, name)


def _finish(said: Notes, asked: Asked) -> None:
    if said:
        _names(said, {"epsilon", "gaps"})
        _require(_is_epsilon(said["epsilon"]), "epsilon", "be a number of at least 0 or inf", said["epsilon"])
        text = all(isinstance(one, str) for one in _list(said, "gaps"))
        _require(text, "gaps", "be text", said["gaps"])


CHECKS: Mapping[str, Callable[[Notes, Asked], None]] = {
    phases.COLUMNS_PHASE: _columns,
    phases.SUMS: _sums,
    phases.SQUARES: _squares,
    phases.TRAIN: _train,
    phases.FINISH: _finish,
}


def _names(found: Notes, wanted: Collection[str]) -> None:
    _require(set(found) == set(wanted), "notes", f"name {', '.join(sorted(wanted)) or 'nothing'}", sorted(found))


def _mapping(found: Notes, name: str) -> dict[str, Any]:
    _require(isinstance(found[name], dict), name, "be named values", found[name])
    return dict(found[name])


def _list(found: Notes, name: str) -> list[Any]:
    _require(isinstance(found[name], list), name, "be a list", found[name])
    return list(found[name])


def _count(found: Notes, name: str) -> None:
    _require(_is_count(found[name]), name, "be a whole number of at least 0", found[name])


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_epsilon(value: Any) -> bool:
    try:
        return isinstance(value, str) and float(value) >= 0
    except ValueError:
        return False


def _require(condition: bool, argument: str, rule: str, received: Any) -> None:
    if not condition:
        raise BlobError(f"{argument} must {rule}, got {str(received)[:200]}.")
