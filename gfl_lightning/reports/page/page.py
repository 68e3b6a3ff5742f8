"""A page: a title, a verdict, sections; written whole as one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from gfl_lightning.reports.page.sections import Section
from gfl_lightning.whole_files import whole_file


@dataclass(frozen=True, eq=False)
class Page:
    """What a report says.

    >>> from gfl_lightning.reports.page.sections import Text
    >>> page = Page("A fit", "It is right on 9 of 10 rows.", [Text("Settings", ["as usual"])])
    >>> "<h2>Settings</h2><p>as usual</p>" in page.html()
    True

    Args:
        title: of the page.
        verdict: one or two sentences that say the most.
        sections: in their order.
    """

    title: str
    verdict: str
    sections: Sequence[Section]

    def html(self) -> str:
        """The whole page; style and script are in it."""
        here = files("gfl_lightning.reports.page")
        style, script = (here.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "graph.js"))
        body = "".join(f"<section><h2>{escape(one.title)}</h2>{one.html()}</section>\n" for one in self.sections)
        return (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(self.title)}</title>\n'
            f'<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">\n'
            f"<style>\n{style}</style></head>\n<body><h1>{escape(self.title)}</h1>\n"
            f'<p class="verdict">{escape(self.verdict)}</p>\n{body}<script>\n{script}</script></body></html>\n'
        )


def write_page(file: Path, page: Page) -> None:
    """Write a page whole or not at all."""
    with whole_file(file) as scratch:
        scratch.write_text(page.html(), encoding="utf-8")
