"""Which figures a study has."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib import rc_context

from gfl_lightning.reports.style import STYLE, VERMILLION
from gfl_lightning.studies import audit_figure, our_figures, paper_figures, private_page
from gfl_lightning.studies.drawing import Picture
from gfl_lightning.studies.outcome import Outcome

MAKERS: dict[str, Callable[[Outcome], list[Picture]]] = {
    "dnc": paper_figures.graphs,
    "dp": paper_figures.noise,
    "connectivity": paper_figures.connectivity,
    "necessity": paper_figures.necessity,
    "curves": paper_figures.curves,
    "cora": our_figures.cora,
    "staleness": our_figures.staleness,
    "theory": our_figures.theory,
    "privacy": private_page.clients_pictures,
    "samples": private_page.samples_pictures,
    "audit": audit_figure.pictures,
}


def pictures(outcome: Outcome) -> dict[str, list[Picture]]:
    """Every figure that the studies of an outcome have, by study."""
    with rc_context(STYLE):
        found = {study: MAKERS[study](outcome) for study in outcome.studies if study in MAKERS}
        if outcome.summary:
            found["summary"] = paper_figures.summary(outcome)
        if outcome.quick:
            for picture in (picture for some in found.values() for picture in some):
                picture.figure.suptitle("quick run: not a result", color=VERMILLION, fontsize=9, x=0.01, ha="left")
    return found
