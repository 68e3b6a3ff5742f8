"""What a comparison found: a record for a file, a table, a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.names import Names
from gfl_lightning.practice.intervals import Interval, interval, interval_over_clients
from gfl_lightning.practice.trial import BASELINE, Found, Scores, size_groups
from gfl_lightning.practice.verdict import IN_POINTS, NAMES, verdict
from gfl_lightning.reports.scores import BETTER_IF_HIGHER
from gfl_lightning.reports.style import BLUE, GREEN, GREY, STYLE, VERMILLION, single

SHOWN = {"class": ("auroc", "accuracy", "log_loss"), "number": ("rmse", "mae", "r2", "spearman")}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods on J splits of the same data.

    Args:
        graph: of the first split.
        names: of its clients.
        found: what each method reached.
        splits: J.
        split_is_given: whether the data say how they are split, so that it was one split, trained on J times.
    """

    graph: ClientGraph
    names: Names
    found: Sequence[Found]
    splits: int
    split_is_given: bool = False

    @property
    def shown(self) -> tuple[str, ...]:
        """The scores that are shown, the first of which decides."""
        return SHOWN["number" if self.graph.loss.of_numbers else "class"]

    @property
    def metric(self) -> str:
        """The score that decides."""
        return self.shown[0]

    @property
    def about(self) -> str:
        """What the figures of the table are, in words."""
        if self.split_is_given:
            return f"Of the split that the data give, {self.seen}; ± is half of a 95 % interval over clients."
        if self.splits == 1:
            return "Of one split, which has no intervals."
        return "Means over splits ± half of their 95 % intervals, which allow for rows that splits share."

    @property
    def seen(self) -> str:
        """What was trained on, in words."""
        if self.split_is_given:
            return "trained on once" if self.splits == 1 else f"trained on {self.splits} times"
        return f"{self.splits} split{'s' * (self.splits > 1)}"

    @cached_property
    def _tested_per_trained(self) -> float:
        test, train = (int(self.graph.mask(part).sum()) for part in (Split.TEST, Split.TRAIN))
        return test / train

    def reached(
        self, values: Sequence[Scores], metric: str, without: Sequence[Sequence[Scores]] | None = None
    ) -> Interval:
        """A score over splits, or over draws of newcomers.

        Known clients of a split that is given have an interval over themselves, from scores ``without`` some of them.
        """
        found = [one[metric] for one in values]
        if self.split_is_given and without is not None:
            return interval_over_clients(found, [[part[metric] for part in split] for split in without])
        return interval(found, self._tested_per_trained)

    def gain(self, of: Found, over: Found, metric: str, new: bool = False) -> Interval:
        """What one method gains over another on the same splits, positive where it is better."""
        sign = 1 if metric in BETTER_IF_HIGHER else -1

        def differences(these: Sequence[Scores], those: Sequence[Scores]) -> list[Scores]:
            return [{metric: sign * (a[metric] - b[metric])} for a, b in zip(these, those, strict=False)]

        if new:
            return self.reached(differences(of.new, over.new), metric)
        without = [differences(*both) for both in zip(of.without, over.without, strict=True)]
        return self.reached(differences(of.known, over.known), metric, without)

    @cached_property
    def verdict(self) -> str:
        """One sentence."""
        first = self.found[0]
        gains = {other.key: self.gain(first, other, self.metric) for other in self.found[1:]}
        by_key = {one.key: one for one in self.found}
        shuffled = self.gain(by_key["shuffled"], by_key["fedavg"], self.metric)
        return verdict(self.metric, gains, shuffled, self.splits, self.split_is_given)

    def table(self) -> pd.DataFrame:
        """A row for each method: scores of known and new clients, and what the graph gains over it."""
        rows = []
        for one in self.found:
            row = {"method": one.title + (" *" if one.in_one_place else "")}
            row |= {NAMES[name]: self._text(self.reached(one.known, name, one.without), name) for name in self.shown}
            row["new clients"] = self._text(self.reached(one.new, self.metric), self.metric) if one.new else "—"
            same = one is self.found[0]
            row["graph gains"] = "" if same else self._text(self.gain(self.found[0], one, self.metric), self.metric)
            rows.append(row)
        return pd.DataFrame(rows)

    def size_table(self) -> pd.DataFrame:
        """The deciding score by number of a client's training rows."""
        names, groups = size_groups(self.graph)
        rows = []
        for place, name in enumerate(names):
            row = {"clients": f"{name} ({int(groups[place].sum())} clients)"}
            for one in self.found:
                found = self.reached([split[place] for split in one.sizes if place < len(split)], self.metric, ())
                row[one.title] = self._text(found, self.metric)
            rows.append(row)
        return pd.DataFrame(rows)

    def client_table(self) -> pd.DataFrame:
        """What each client gains by the graph over FedAvg, in loss, by name; those that lose most first."""
        by_key = {one.key: one for one in self.found}
        pairs = zip(by_key["fedavg"].losses, by_key["graph"].losses, strict=True)
        gain = torch.stack([fedavg - graph for fedavg, graph in pairs]).nanmean(0)
        trained = self.graph.counts(self.graph.mask(Split.TRAIN))
        rows = {"client": list(self.names.clients), "training_samples": trained.tolist(), "gain": gain.tolist()}
        return pd.DataFrame(rows).dropna().sort_values("gain", ignore_index=True)

    def record(self) -> dict[str, Any]:
        """Everything, for a file."""
        graph, first = self.graph, self.found[0]
        others = [one for one in self.found if one is not first]
        differences = [
            {"of": first.key, "from": one.key, "where": where, "metric": name, **gain.record()}
            for one in others
            for where in ("known", "new")
            for name in self.shown
            if (gain := self.gain(first, one, name, new=where == "new")).mean == gain.mean
        ]
        return {
            "version": 1,
            "data": {
                "clients": graph.num_clients,
                "rows": graph.num_samples,
                "edges": graph.num_edges,
                "outputs": graph.num_classes,
                "loss": type(graph.loss).__name__,
            },
            "metric": self.metric,
            "higher_is_better": self.metric in BETTER_IF_HIGHER,
            "splits": self.splits,
            "split_is_given": self.split_is_given,
            "methods": [self._method(one) for one in self.found],
            "differences": differences,
            "clients": self.client_table().to_dict("records"),
            "verdict": self.verdict,
        }

    def _method(self, one: Found) -> dict[str, Any]:
        def all_of(values: Sequence[Scores], without: Sequence[Sequence[Scores]] | None = None) -> dict[str, Any]:
            return {
                name: self.reached(values, name, without).record() | {"values": [split[name] for split in values]}
                for name in values[0]
            }

        names, groups = size_groups(self.graph)
        sizes = [
            {
                "label": name,
                "clients": int(groups[place].sum()),
                self.metric: self.reached([s[place] for s in one.sizes if place < len(s)], self.metric, ()).record(),
            }
            for place, name in enumerate(names)
        ]
        return {
            "key": one.key,
            "title": one.title,
            "needs_data_in_one_place": one.in_one_place,
            "known": all_of(one.known, one.without),
            "new": all_of(one.new) if one.new else None,
            "by_size": sizes,
        }

    @staticmethod
    def _text(found: Interval, metric: str) -> str:
        factor, digits = (100, 2) if metric in IN_POINTS else (1, 4)
        if not np.isfinite(found.mean):
            return "—"
        width = f" ± {factor * found.half_width:.{digits}f}" if np.isfinite(found.half_width) else ""
        return f"{factor * found.mean:.{digits}f}{width}"

    def figure(self) -> Figure:
        """The deciding score of every method with its interval, for known and for new clients."""
        factor, shown = 100 if self.metric in IN_POINTS else 1, [one for one in self.found if one.key != BASELINE[0]]
        with rc_context(STYLE):
            figure, axes = single(7.2, 1.6 + 0.4 * len(shown))
            for where, colour, shift in (("known", BLUE, -0.12), ("new", VERMILLION, 0.12)):
                for place, one in enumerate(shown):
                    values = one.known if where == "known" else one.new
                    if not values:
                        continue
                    at = self.reached(values, self.metric, one.without if where == "known" else None)
                    reach = [[factor * at.half_width]] * 2 if np.isfinite(at.half_width) else None
                    shade = GREEN if one.in_one_place and where == "known" else colour
                    axes.errorbar(
                        factor * at.mean, place + shift, xerr=reach, fmt="o", markersize=4, color=shade, capsize=2
                    )
            axes.plot([], [], "o", color=BLUE, label="known clients")
            axes.plot([], [], "o", color=GREEN, label="known, all rows in one place")
            axes.plot([], [], "o", color=VERMILLION, label="clients that join later")
            axes.axvline(factor * self.reached(self.found[0].known, self.metric).mean, color=GREY, linewidth=0.8)
            axes.set_yticks(range(len(shown)), [one.title for one in shown])
            axes.invert_yaxis()
            seen = "one split" if self.splits == 1 else f"{self.splits} splits, 95 % intervals"
            seen = "one split, 95 % intervals over clients" if self.split_is_given else seen
            axes.set(xlabel=f"{NAMES.get(self.metric, self.metric)} on test rows, {seen}")
            figure.legend(loc="outside lower center", ncols=3, fontsize=8)
        return figure
