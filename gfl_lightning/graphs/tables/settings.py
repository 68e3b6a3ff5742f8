"""What a user says about tables: which columns mean what, and how they become features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from gfl_lightning.checks import InputError, require, require_count

Task = Literal["dnc", "snc", "sc"]
Scaling = Literal["shared", "per_client", "none"]
MissingRule = Literal["fill", "indicator", "refuse"]
OF_THE_MODEL = ("task", "features", "client_features", "scaling", "missing")
NO_SEPARATORS = "\"'\\ \n\r\0\v\f"
OPTIONAL_COLUMNS = ("label", "split", "id")
NO_COLUMN = "\0"  # the name of none


@dataclass(frozen=True)
class Settings:
    """How the table of samples is read: the options of ``ClientTables`` of the same names, none of them left out.

    >>> Settings(task="snc", fractions=(0.5, 0.25, 0.25)).scaling
    'shared'
    """

    task: Task = "sc"
    client: str = "client"
    label: str = "label"
    split: str = "split"
    split_by: str | None = None
    id: str = "id"
    features: tuple[str, ...] | None = None
    client_features: tuple[str, ...] | None = None
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    scaling: Scaling = "shared"
    missing: MissingRule = "fill"
    missing_values: tuple[str, ...] = ("", "NA", "NaN", "nan", "null")
    max_categories: int = 100
    fractions: tuple[float, ...] = (0.6, 0.2, 0.2)
    seed: int = 0
    separator: str = ","

    def __post_init__(self) -> None:
        for name, choices in (("task", Task), ("scaling", Scaling), ("missing", MissingRule)):
            value = getattr(self, name)
            require(value in get_args(choices), name, f"be one of {', '.join(get_args(choices))}", value)
        require(
            self.scaling != "per_client" or self.task != "dnc",
            "scaling",
            "be shared or none for dnc, where a client has one row",
            self.scaling,
        )
        columns = [self.client, self.label, self.split, self.id]
        require(len(set(columns)) == 4, "client, label, split and id", "be different columns", columns)
        require(self.split_by not in columns, "split_by", "be another column than client, label, split and id", columns)
        for name in ("features", "client_features", "numeric", "categorical"):
            named = getattr(self, name) or ()
            require(len(set(named)) == len(named), name, "name every column once", list(named))
            taken = sorted(set(named) & set(columns))
            require(not taken, name, "name no column of clients, labels, splits or ids", taken)
        both = sorted(set(self.numeric) & set(self.categorical))
        require(not both, "numeric and categorical", "share no column", both)
        if self.features is not None:
            require(len(self.features) > 0, "features", "name at least one column", [])
        require_count("max_categories", self.max_categories)
        usable = len(self.separator) == 1 and self.separator.isascii() and self.separator not in NO_SEPARATORS
        rule = "be one character of ASCII, other than quotes, spaces and line breaks"
        require(usable, "separator", rule, self.separator)
        require_count("seed", self.seed, 0)
        parts = self.fractions
        fit = len(parts) == 3 and all(0 <= part <= 1 for part in parts) and abs(sum(parts) - 1) < 1e-6
        require(fit, "fractions", "be three numbers of at least 0 for train, val and test that sum to 1", list(parts))

    @classmethod
    def of(cls, given: Mapping[str, Any], saved: Settings | None = None) -> Settings:
        """Settings from what is given (``None``: not given) over those saved with a model.

        What the model was trained with cannot be given otherwise.
        """
        named = {name: _plain(value) for name, value in given.items() if value is not None}
        if saved is None:
            require("task" in named, "task", f"be one of {', '.join(get_args(Task))}", None)
            return cls(**(_unclaimed(named) | named))
        for name in (*OF_THE_MODEL, "numeric", "categorical"):
            if name in named and named[name] != getattr(saved, name):
                raise InputError(
                    f"{name} must be left out or be {_listed(getattr(saved, name))!r}, as the model was trained, "
                    f"got {_listed(named[name])!r}."
                )
        return replace(saved, **named)

    def state(self) -> dict[str, Any]:
        """Plain containers."""
        return {name: _listed(value) for name, value in asdict(self).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Settings:
        """From what :meth:`state` returned."""
        known = {field.name for field in fields(cls)}
        require(set(state) == known, "settings", f"hold {', '.join(sorted(known))}", ", ".join(sorted(state)))
        return cls(**{name: _plain(value) for name, value in state.items()})


def _unclaimed(named: Mapping[str, Any]) -> dict[str, Any]:
    """No column for splits or ids by default where the one of the default name is said to be something else."""
    taken = [named.get(role) for role in ("client", "label", "split_by")]
    return {role: NO_COLUMN for role in ("split", "id") if role in taken}


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
