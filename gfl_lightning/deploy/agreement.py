"""Before training: the sites agree on columns, classes and scaling by sums alone; one that does not fit is named.

1. Each site names its columns with their kinds, and its label values; the server finds what they agree on.
2. Each sends counts, sums and categories of its training rows; the server makes means.
3. Each sends Σ (x − mean)²; the server makes the encoding that a single table of all rows would have had.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.table_plan import TablePlan
from gfl_lightning.graphs.tables.encoding import CategoryCode, Code, Encoding, NumericCode
from gfl_lightning.graphs.tables.samples import Label, ascending_labels

Notes = Mapping[str, Mapping[str, Any]]
"""What each site said, by its name."""


class SiteRefusedError(InputError):
    """Sites whose tables do not fit the others; ``sentences`` says why, by site."""

    def __init__(self, sentences: Mapping[str, str]) -> None:
        listed = "\n".join(f"  {site}: {sentence}" for site, sentence in sentences.items())
        super().__init__(f"the tables of the sites must agree, got {len(sentences)} that does not:\n{listed}")
        self.sentences = dict(sentences)


@dataclass(frozen=True)
class Agreed:
    """What the sites have in common.

    Args:
        features: kind of each feature, by column.
        classes: the label values.
    """

    features: Mapping[str, str]
    classes: tuple[Label, ...]


def agree_on_columns(plan: TablePlan, said: Notes) -> Agreed:
    """Columns that most sites have, each of one kind; a site with others is refused by name."""
    columns = list(plan.settings.features or _most_common(said))
    kinds, refused = {}, {}
    for column in columns:
        votes = Counter(one["features"].get(column) for one in said.values() if one["features"].get(column))
        kinds[column] = votes.most_common(1)[0][0] if votes else ""
        if len(votes) > 1 and votes.most_common(2)[0][1] == votes.most_common(2)[1][1]:
            raise SiteRefusedError(
                {
                    site: f"column {column!r} is {one['features'].get(column)} here and not at as many other sites; "
                    "list it in categorical or numeric"
                    for site, one in said.items()
                }
            )
    for site, one in said.items():
        sentence = _misfit(one["features"], columns, kinds)
        if sentence:
            refused[site] = sentence
    known = plan.classes or ascending_labels(value for one in said.values() for value in one["labels"])
    if refused:
        raise SiteRefusedError(refused)
    empty = [column for column, kind in kinds.items() if not kind]
    if empty:
        raise InputError(f"features must have a value at some site, got none in the columns {', '.join(empty)}.")
    if len(known) < 2:
        raise InputError(f"the sites must have at least two classes, got {list(known)}.")
    return Agreed(kinds, tuple(known))


def agree_on_means(agreed: Agreed, said: Notes) -> dict[str, float]:
    """Mean of each numeric feature that is not public, over the training rows of all sites."""
    means = {}
    for name, kind in agreed.features.items():
        parts = [one["features"][name] for one in said.values()]
        if kind == "numeric" and "sum" in parts[0]:
            count = sum(part["count"] for part in parts)
            means[name] = sum(part["sum"] for part in parts) / count if count else 0.0
    return means


def agree_on_encoding(
    plan: TablePlan, agreed: Agreed, said: Notes, means: Mapping[str, float], squares: Notes
) -> Encoding:
    """The encoding of all training rows together."""
    codes: list[Code] = []
    for name, kind in agreed.features.items():
        parts = [one["features"][name] for one in said.values()]
        some_missing = any(part["some_missing"] for part in parts)
        if name in plan.ranges:
            low, high = plan.ranges[name]
            codes.append(NumericCode.within(name, float(low), float(high), some_missing, plan.settings))
        elif kind == "numeric":
            count = sum(part["count"] for part in parts)
            total = sum(one[name] for one in squares.values())
            deviation = math.sqrt(total / count) if count else 0.0
            codes.append(NumericCode.of(name, means[name], deviation, some_missing, plan.settings))
        else:
            seen = plan.categories.get(name) or {value for part in parts for value in part["categories"]}
            if len(seen) > plan.settings.max_categories:
                raise InputError(
                    f"max_categories must be at least {len(seen)}, the categories of {name!r} at all sites together, "
                    f"got {plan.settings.max_categories}."
                )
            flagged = plan.settings.missing == "indicator" and some_missing
            codes.append(CategoryCode(name, tuple(sorted(seen)), flagged))
    encoding = Encoding(plan.settings, agreed.classes, tuple(codes))
    if not encoding.num_features:
        raise InputError("features must have a value in some training row, got none.")
    return encoding


def agree_on_class_weights(plan: TablePlan, agreed: Agreed, said: Notes) -> list[float]:
    """w_y of each class: 1, as given, or n / (c n_y) from the sites' counts; a class nobody trains on is refused."""
    counts = [sum(column) for column in zip(*(one["classes"] for one in said.values()), strict=True)]
    for label, count in zip(agreed.classes, counts, strict=True):
        if not count:
            raise InputError(f"class {label!r} must have a training row at some site, got none.")
    if not sum(one["validation"] for one in said.values()):
        raise InputError("split must be val in some row, which picks the best round, got none.")
    if isinstance(plan.class_weights, dict):
        names = [str(label) for label in agreed.classes]
        if set(plan.class_weights) != set(names):
            raise InputError(f"class_weights must give a weight for each of {', '.join(names)}, got others.")
        return [plan.class_weights[name] for name in names]
    if plan.class_weights is None:
        return [1.0] * len(counts)
    return [sum(counts) / (len(counts) * count) for count in counts]


def _most_common(said: Notes) -> list[str]:
    """Columns that more than half of the sites have, in the order of the first site that has them."""
    votes = Counter(column for one in said.values() for column in one["features"])
    return [column for column, count in votes.items() if 2 * count > len(said)]


def _misfit(found: Mapping[str, str | None], columns: Sequence[str], kinds: Mapping[str, str]) -> str | None:
    """Why a site's columns do not fit, if they do not."""
    lacking = [column for column in columns if column not in found]
    if lacking:
        return f"there is no column {lacking[0]!r}, a feature at the other sites"
    unknown = [column for column in found if column not in columns]
    if unknown:
        return f"column {unknown[0]!r} is unknown at the other sites; leave it out, or name the features"
    for column in columns:
        kind = found[column]
        if kind is not None and kind != kinds[column]:
            return (
                f"column {column!r} is {kind} here and {kinds[column]} at the other sites; list it in {kinds[column]} "
                "and correct its cells"
            )
    return None
