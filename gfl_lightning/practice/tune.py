"""``python -m gfl_lightning tune``: good settings by validation loss."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.practice.candidates import candidates
from gfl_lightning.practice.command import Order
from gfl_lightning.practice.halving import Candidate, halved
from gfl_lightning.practice.methods import Isolated
from gfl_lightning.practice.rounds import Run
from gfl_lightning.practice.setting import Setting
from gfl_lightning.reports.summary import strict
from gfl_lightning.whole_files import whole_file

MORE_ROUNDS = 1.25


def tune(order: Order) -> None:
    """Search, and write the configuration that was best and what was tried."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    setting = Setting.read(order.config)
    data = setting.data_set()
    graphs = [data.repeated(number).graph.without_test() for number in range(order.splits)]
    tried = [Candidate(options) for options in candidates(graphs[0], order.candidates)]
    best = search(setting, graphs, tried)
    rounds = max(20, round(MORE_ROUNDS * best.best_round))
    record = {
        "version": 1,
        "config": str(order.config),
        "command": order.command,
        "splits": order.splits,
        "as_configured": tried[0].record(),
        "isolated": isolated_loss(setting, graphs),
        "best": best.record() | {"max_steps": rounds},
        "tried": [one.record() for one in tried],
        "seconds": round(time.perf_counter() - began, 1),
    }
    configuration = yaml.safe_load(order.config.read_text(encoding="utf-8"))
    configuration["model"] = setting.with_options(best.options).model
    configuration["trainer"] = {**(configuration.get("trainer") or {}), "max_steps": rounds}
    with whole_file(order.out) as scratch:
        text = yaml.safe_dump(configuration, sort_keys=False, allow_unicode=True)
        scratch.write_text(f"# Written by: {order.command}\n{text}", encoding="utf-8")
    with whole_file(order.out.with_suffix(".json")) as scratch:
        scratch.write_text(json.dumps(strict(record), indent=1, allow_nan=False))
    print(told(record))
    print(f"files  {order.out}, {order.out.with_suffix('.json')}")


def search(setting: Setting, graphs: list[ClientGraph], tried: list[Candidate]) -> Candidate:
    """The best of the candidates; one that its parts refuse counts as infinitely bad."""

    def begin(options: dict[str, Any]) -> list[Run]:
        some = setting.with_options(options)
        try:
            engines = [some.gfl(graph, seed).engine_on(graph, some.rounds) for seed, graph in enumerate(graphs)]
        except Exception as error:
            if isinstance(error, InputError) or isinstance(error.__cause__ or error.__context__, InputError):
                return []
            raise
        return [Run(engine) for engine in engines]

    def heard(number: int, rounds: int) -> None:
        print(f"{number} settings, {rounds} rounds", file=sys.stderr)

    return halved(tried, begin, setting.rounds, heard)


def isolated_loss(setting: Setting, graphs: list[ClientGraph]) -> float | None:
    """The validation loss of isolated models, corrected for picking rounds by few samples; none where some cannot."""
    try:
        method = Isolated("isolated", "isolated", {})
        runs = [method.run(setting, graph, seed, 1.0) for seed, graph in enumerate(graphs)]
    except InputError:
        return None
    return sum(run.val_loss for run in runs) / len(runs)


def told(record: dict[str, Any]) -> str:
    """What came of it, in words."""
    best, given = record["best"], record["as_configured"]["val_loss"]
    lines = [f"validation loss {best['val_loss']:.4f} in round {best['best_round']}"]
    if given is not None:
        lines.append(f"as configured {given:.4f}")
    if record["isolated"] is not None:
        lines.append(f"isolated models {record['isolated']:.4f}, corrected")
    options = "\n".join(f"  model.{name}: {value}" for name, value in best["options"].items())
    lines = [", ".join(lines), f"settings, of {len(record['tried'])} tried in {record['seconds']} s:"]
    return "\n".join([*lines, options or "  as configured"])
