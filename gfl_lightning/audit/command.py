"""``python -m gfl_lightning audit --config FILE``: what the messages of a configuration reveal, measured by attacks."""

from __future__ import annotations

import json
import sys
from typing import Any

from pytorch_lightning.cli import LightningArgumentParser

from gfl_lightning.audit.cast import Scale
from gfl_lightning.audit.figure import save
from gfl_lightning.audit.of_model import audited
from gfl_lightning.audit.page import page, screen
from gfl_lightning.checks import InputError, require
from gfl_lightning.command_line import EXIT_DIVERGED
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.lit import cli
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.whole_files import whole_file

COMMAND, FIT = "audit", "fit"


class AuditCLI(cli.RoundsCLI):
    """The command line of `fit`, which attacks the federation instead of handing it to a trainer."""

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **options: Any) -> LightningArgumentParser:
        """The parser of `fit`, with the scale of the audit."""
        parser = super()._prepare_subcommand_parser(klass, subcommand, **options)
        if subcommand == FIT:
            parser.add_class_arguments(Scale, COMMAND)
            self._subcommand_method_arguments[subcommand].append(COMMAND)
        return parser

    def fit(self, model: RoundModule, patience: int | None = None, report: bool = True, **options: Any) -> None:
        """Train on the plain engine, attack, write audit.md, audit.json and audit.png."""
        if not isinstance(model, GFL):
            raise InputError(f"model must be GFL, whose clients send something, got {type(model).__name__}.")
        require(options.get("ckpt_path") is None, "ckpt_path", "be left out of an audit", options.get("ckpt_path"))
        rounds = self.trainer.max_steps
        require(rounds >= 1, "max_steps", "be the number of rounds to audit", rounds)
        chosen = options.get(COMMAND)
        scale = Scale() if chosen is None else Scale(**vars(chosen))
        found = audited(model, self.datamodule.graph, rounds, scale)
        folder = self.folder
        title = f"{type(model).__name__} on {type(self.datamodule.data_set).__name__}"
        about = [f"{rounds} rounds of `{self.datamodule.data_set}`, {found.seconds:.0f} s."]
        save(found.findings, folder / "audit.png")
        text = json.dumps(found.as_dict(), indent=1, allow_nan=False)
        for name, content in (("audit.md", page(title, found, about)), ("audit.json", text)):
            with whole_file(folder / name) as scratch:
                scratch.write_text(content, encoding="utf-8")
        print(screen(found))
        print(f"{'files':>17}  {folder}")


def main(arguments: list[str]) -> None:
    """Run; one sentence and exit code 2 for a mistake, 3 for a federation that diverges."""
    sys.argv = [sys.argv[0], FIT, *arguments]
    try:
        cli.main(AuditCLI)
    except DivergedError as stop:
        print(f"error: {stop}", file=sys.stderr)
        sys.exit(EXIT_DIVERGED)
