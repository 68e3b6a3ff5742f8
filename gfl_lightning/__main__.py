"""The command line. What needs no torch is answered without importing it."""

import importlib
import os
import signal
import sys
from difflib import get_close_matches
from typing import Any

USAGE = """usage: python -m gfl_lightning COMMAND [--config FILE] [options]

Graph federated learning with hidden representation sharing (GFL-APPNP) on PyTorch Lightning.

commands:
  fit        train in communication rounds, test the best model, write summary.json
  validate   metrics of a checkpoint on the validation samples
  test       metrics of a checkpoint on the test samples
  predict    write predictions.csv: predicted label and class probabilities of every sample
  export     write what may leave of a private run: its weights, ε, δ, unit and adversary
  compare    train the graph, FedAvg, isolated and pooled models on several splits: does the graph help here?
  tune       search for good settings by validation loss, and write a configuration
  init DIR   write a starter: a commented configuration and two small tables
  audit      attack a configuration's federation and say what its messages reveal
  reproduce  run the paper's experiments and show them beside the published numbers
  deploy     run a federation of real processes: prepare, server, site, status, predict, demo

  python -m gfl_lightning fit --config configs/paper/dnc_synthetic.yaml
  python -m gfl_lightning fit --print_config          every option with its default
  python -m gfl_lightning fit --model.help GFL        options of a model (GFL, Central, LocalMLPs)
  python -m gfl_lightning fit --data.help DNC         options of a data set (SNC, SC, ClientTables, …)
  python -m gfl_lightning COMMAND --help              options of the trainer
  python -m gfl_lightning reproduce --help            the studies and their options
"""
COMMANDS: dict[str, tuple[str, ...]] = {
    "audit": ("gfl_lightning.audit.command",),
    "compare": ("gfl_lightning.practice.command", "compare"),
    "deploy": ("gfl_lightning.deploy.command",),
    "export": ("gfl_lightning.lit.exporting",),
    "init": ("gfl_lightning.starter",),
    "reproduce": ("gfl_lightning.studies.command",),
    "tune": ("gfl_lightning.practice.command", "tune"),
}
"""The module behind a command that is not Lightning's, and what its ``main`` is told before the arguments."""
LIGHTNINGS = ("fit", "validate", "test", "predict")


def main() -> None:
    """Answer a call for help, or run a command."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(USAGE, end="")
        return
    if not sys.argv[1].startswith("-") and sys.argv[1] not in (*COMMANDS, *LIGHTNINGS):
        known = sorted((*COMMANDS, *LIGHTNINGS))
        near = get_close_matches(sys.argv[1], known, n=1)
        hint = f" Perhaps {near[0]}." if near else ""
        print(f"error: COMMAND must be one of {', '.join(known)}, got {sys.argv[1]!r}.{hint}", file=sys.stderr)
        sys.exit(2)
    if sys.argv[1] in COMMANDS:
        home, *told = COMMANDS[sys.argv[1]]
        loaded(home).main(*told, sys.argv[2:])
    else:
        loaded("gfl_lightning.lit.cli").main()


def loaded(name: str) -> Any:
    """A module; Ctrl-C during its seconds of imports, which some libraries take badly, ends without a word."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    module = importlib.import_module(name)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, usual)
    return module


if __name__ == "__main__":
    main()
