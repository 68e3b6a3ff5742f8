"""``python -m gfl_lightning compare``: whether the graph helps on these data."""

from __future__ import annotations

import json
import sys
import time

import torch
from tqdm import tqdm

from gfl_lightning.practice.command import Order
from gfl_lightning.practice.comparison import Comparison
from gfl_lightning.practice.markdown import page
from gfl_lightning.practice.methods import best_rate, methods
from gfl_lightning.practice.page import html_page
from gfl_lightning.practice.setting import Setting
from gfl_lightning.practice.trial import start, trial
from gfl_lightning.reports.page.page import write_page
from gfl_lightning.reports.summary import strict
from gfl_lightning.whole_files import whole_file


def compare(order: Order) -> None:
    """Train every method on some splits, and write and print what they reach."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    found, rates = compared(Setting.read(order.config), order.splits)
    record = found.record() | {"config": str(order.config), "command": order.command, "rates": rates}
    record["seconds"] = round(time.perf_counter() - began, 1)
    order.out.mkdir(parents=True, exist_ok=True)
    with whole_file(order.out / "compare.json") as scratch:
        scratch.write_text(json.dumps(strict(record), indent=1, allow_nan=False))
    with whole_file(order.out / "compare.md") as scratch:
        scratch.write_text(page(found, order.command), encoding="utf-8")
    with whole_file(order.out / "compare.png") as scratch:
        found.figure().savefig(scratch, format="png")
    write_page(order.out / "compare.html", html_page(found, order.command))
    print(found.table().to_string(index=False))
    print(f"* needs all rows in one place. {found.about}\n")
    print(found.verdict)
    print(f"files  {order.out}")


def compared(setting: Setting, splits: int) -> tuple[Comparison, dict[str, float]]:
    """The comparison, and the factor of the configuration's rate that each method took.

    A method's rate is picked on the first split, by validation loss, once for all.
    """
    data = setting.data_set()
    graph = data.repeated(0).graph
    given = data.repeated(1) is data
    chosen = methods(setting, graph)
    found = start(chosen)
    with tqdm(total=len(chosen) + splits, desc="compare", file=sys.stderr, disable=not sys.stderr.isatty()) as bar:
        rates: dict[str, float] = {}
        for method in chosen:
            rates[method.key] = rates.get(method.rate_of) or best_rate(method, setting, graph)
            bar.update()
        for number in range(splits):
            trial(setting, data.repeated(number).graph, number, chosen, rates, found, given)
            bar.update()
    return Comparison(graph, data.names, found, splits, given), rates
