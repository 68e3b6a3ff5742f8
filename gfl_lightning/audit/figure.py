"""The figure of one audit: success of each attack beside guessing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from gfl_lightning.audit.findings import Finding
from gfl_lightning.audit.page import names
from gfl_lightning.reports.style import BLUE, GREY, STYLE, VERMILLION, single
from gfl_lightning.whole_files import whole_file


def draw(findings: Sequence[Finding]) -> Figure:
    """A bar of success with its interval, and a mark at guessing, for each attack."""
    with rc_context(STYLE):
        figure, axes = single(8.6, 1.0 + 0.34 * len(findings))
        for place, one in enumerate(reversed(findings)):
            colour = VERMILLION if one.beats_guessing else BLUE
            axes.barh(place, one.success, color=colour, height=0.6, alpha=0.85)
            errors = [[max(0.0, one.success - one.low)], [max(0.0, one.high - one.success)]]
            axes.errorbar(one.success, place, xerr=errors, color="black", capsize=2, linewidth=1)
            axes.plot([one.blind, one.blind], [place - 0.38, place + 0.38], color=GREY, linewidth=2.5)
        texts = [f"{one.adversary}: {name}" for one, name in zip(findings, names(findings), strict=True)]
        axes.set_yticks(range(len(findings)), texts[::-1])
        axes.set(xlim=(0, 1.02), xlabel="success (grey mark: guessing without messages)")
    return figure


def save(findings: Sequence[Finding], file: Path) -> None:
    """Write the figure; the same findings give the same bytes."""
    with rc_context(STYLE), whole_file(file) as scratch:
        draw(findings).savefig(scratch, format="png", metadata={"Software": None})
