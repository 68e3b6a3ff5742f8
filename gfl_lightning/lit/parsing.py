"""What a command line means: the parser of data set, model and trainer, and what a checkpoint adds to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from pydoc import locate
from typing import Any, cast

from pytorch_lightning.cli import ArgsType, LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import Logger

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.client_graph_file import ClientGraphFile
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.karate import KarateClub
from gfl_lightning.graphs.datasets.planetoid import Planetoid
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.datasets.snc import SNC
from gfl_lightning.graphs.datasets.subcora import SubCora
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.lit.central import Central
from gfl_lightning.lit.checkpoints import data_class, model_of, names_a_model, read_checkpoint
from gfl_lightning.lit.data import ClientGraphData
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.local_mlps import LocalMLPs
from gfl_lightning.lit.overlays import refuse_lost_protection
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.reports.predictions import require_ending

KNOWN = (GFL, Central, LocalMLPs, DNC, SNC, SC, SubCora, Planetoid, KarateClub, ClientGraphFile)  # by short names
LINKED: dict[str, Callable[[ClientGraph], int]] = {
    "num_features": lambda graph: graph.num_features,
    "num_classes": lambda graph: graph.num_classes,
    "num_clients": lambda graph: graph.num_clients,
}
BELOW_ROOT, ROOT = "", "runs"  # a logger's save_dir that stands for the trainer's default_root_dir, and its default


class ConfiguredCLI(LightningCLI):
    """LightningCLI whose data are a data set and whose models say themselves what a checkpoint keeps of them."""

    model: RoundModule
    datamodule: ClientGraphData
    trainer: FederatedTrainer

    def __init__(self) -> None:
        super().__init__(
            model_class=RoundModule,
            trainer_class=FederatedTrainer,
            subclass_mode_model=True,
            auto_configure_optimizers=False,
            seed_everything_default=False,
            load_from_checkpoint_support=False,
            save_config_kwargs={"overwrite": True},
            parser_kwargs={"prog": "python -m gfl_lightning"},
            trainer_defaults={
                "logger": {
                    "class_path": "pytorch_lightning.loggers.CSVLogger",
                    "init_args": {"save_dir": BELOW_ROOT, "name": "gfl"},
                },
                "enable_model_summary": False,
            },
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The commands, with the arguments of the trainer's methods that are not for the command line."""
        ours = {"weights_only", "return_predictions"}  # no file runs code, and predictions are always written
        return {name: skipped | ours for name, skipped in LightningCLI.subcommands().items()}

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Trainer, model and data set."""
        parser.add_lightning_class_args(FederatedTrainer, "trainer")
        parser.set_defaults({f"trainer.{name}": value for name, value in self.trainer_defaults.items()})
        parser.add_lightning_class_args(RoundModule, "model", subclass_mode=True)
        parser.add_subclass_arguments(DataSet, "data", required=True)
        for name, size in LINKED.items():
            parser.link_arguments("data", f"model.init_args.{name}", _of_the_graph(size), apply_on="instantiate")

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **options: Any) -> LightningArgumentParser:
        """The parser of a command; `predict` may be told where to write."""
        parser = super()._prepare_subcommand_parser(klass, subcommand, **options)
        if subcommand == "predict":
            text = "File of the predictions, .csv or .parquet (default: predictions.csv in the run's folder)."
            parser.add_argument("--output", type=str | None, default=None, help=text)
            self._subcommand_method_arguments[subcommand].append("output")
        return parser

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse the command line; refuse one that loses protection on the way."""
        arguments = with_defaults(sys.argv[1:])
        self.config = parser.parse_args(arguments)
        command = self.config.subcommand

        def callbacks(of: Any) -> Any:
            whole = [*of, *([] if command in of else [command])]
            return parser.parse_args(whole, _skip_validation=True)[command].trainer.callbacks

        refuse_lost_protection(callbacks, arguments, self.config[command].trainer.callbacks)

    def _parse_ckpt_path(self) -> None:
        """Take the model's options from the checkpoint only where the command line names no model."""
        command, given = self.config.subcommand, self.config[self.config.subcommand]
        self._checkpoint = read_checkpoint(given.get("ckpt_path"), command)
        if self._checkpoint is None:
            return
        if not names_a_model(sys.argv[1:]):
            model = model_of(self._checkpoint, list(LINKED))
            self.config = self.parser.parse_object({command: {"model": model}}, self.config)
        data = self.config[command].get("data")
        kind: Any = None if data is None else locate(data.class_path)
        tables = isinstance(kind, type) and issubclass(kind, ClientTables)
        if tables and kind.__name__ == data_class(self._checkpoint) and data.init_args.get("encoding") is None:
            data.init_args.encoding = str(self.config[command].ckpt_path)

    def before_instantiate_classes(self) -> None:
        """Refuse a seed that nothing here would use; let loggers write below the trainer's folder."""
        given = self.config[self.config.subcommand]
        seed = given.get("seed_everything")
        unused = seed is None or seed is False
        require(unused, "seed_everything", "be left out, as the seeds of model and data determine everything", seed)
        if given.get("output") is not None:
            require_ending(Path(given.output))
        root = os.path.expanduser(given.trainer.default_root_dir or ROOT)

        def logger(kind: type[Logger], *args: Any, **options: Any) -> Logger:
            return kind(*args, **options | ({"save_dir": root} if options.get("save_dir") == BELOW_ROOT else {}))

        self.parser.add_instantiator(logger, Logger)

    def instantiate_classes(self) -> None:
        """Data, model and trainer."""
        super().instantiate_classes()
        self.datamodule = ClientGraphData(cast(DataSet, self.datamodule))


def _of_the_graph(size: Callable[[ClientGraph], int]) -> Callable[[DataSet], int]:
    """What a model learns from a data set."""

    def of(data: DataSet) -> int:
        return size(data.graph)

    return of


def with_defaults(args: list[str]) -> list[str]:
    """Arguments with model and data named where no configuration file and no argument names them.

    They cannot be defaults of the parser: a configuration that names another class would inherit their values.
    """
    if not args or any(a.split("=")[0] in ("-c", "--config", "-h", "--help") for a in args):
        return args
    missing = {"--model": GFL, "--data": DNC}
    named = {a.split("=")[0] for a in args}
    return [args[0], *(f"{key}={kind.__name__}" for key, kind in missing.items() if key not in named), *args[1:]]
