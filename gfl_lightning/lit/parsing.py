"""What a command line means: the parser of data set, model and trainer, and what a checkpoint adds to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from pydoc import locate
from typing import Any, NoReturn, cast

import yaml  # type: ignore[import-untyped]
from jsonargparse import Namespace, get_loader, set_loader
from pytorch_lightning.cli import ArgsType, LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import Logger

from gfl_lightning.checks import InputError, require
from gfl_lightning.command_line import EXIT_BAD_INPUT
from gfl_lightning.graphs.datasets.citations import Citations
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
from gfl_lightning.lit.checkpoints import data_of, model_of, read_checkpoint
from gfl_lightning.lit.data import ClientGraphData
from gfl_lightning.lit.failures import mistake_behind
from gfl_lightning.lit.folders import ConfigSaver
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.local_mlps import LocalMLPs
from gfl_lightning.lit.options import FREE, differences, overlaid, refuse, require_parts
from gfl_lightning.lit.overlays import refuse_lost_protection, refuse_options_before_files
from gfl_lightning.lit.parser_words import one_sentence
from gfl_lightning.lit.patience import ON_TABLES
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.lit.suggestions import suggesting
from gfl_lightning.parts import CLASS, OPTIONS
from gfl_lightning.reports.predictions import require_ending
from gfl_lightning.stated_once import require_names_once

KNOWN = (GFL, Central, LocalMLPs, DNC, SNC, SC, SubCora, Planetoid, Citations, KarateClub, ClientGraphFile)
LINKED: dict[str, Callable[[DataSet], int]] = {
    "num_features": lambda data: data.graph.num_features,
    "num_classes": lambda data: data.graph.num_classes,
    "num_clients": lambda data: data.graph.num_clients if data.placement is None else data.placement.size,
}
READ = get_loader("yaml")
BELOW_ROOT, ROOT = "", "runs"  # a logger's save_dir that stands for the trainer's default_root_dir, and its default


class Parser(LightningArgumentParser):
    """A parser that answers a mistake with one sentence."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print what is wrong and leave."""
        mistake = mistake_behind(ex)
        print(f"error: {one_sentence(message) if mistake is None else mistake}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)


class ConfiguredCLI(LightningCLI):
    """LightningCLI whose data are a data set and whose models say themselves what a checkpoint keeps of them."""

    model: RoundModule
    datamodule: ClientGraphData
    trainer: FederatedTrainer

    def __init__(self) -> None:
        set_loader("yaml", _stated_once, (yaml.YAMLError,), json_superset=True)
        super().__init__(
            model_class=RoundModule,
            trainer_class=FederatedTrainer,
            subclass_mode_model=True,
            auto_configure_optimizers=False,
            seed_everything_default=False,
            load_from_checkpoint_support=False,
            save_config_callback=ConfigSaver,
            parser_class=Parser,
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
        """The commands, with the arguments of the trainer's methods that are not for the command line.

        A parser for each takes longer to make than a short fit: there is only that of the command which was given.
        """
        ours = {"weights_only", "return_predictions"}  # no file runs code, and predictions are always written
        every = LightningCLI.subcommands()
        asked = every.keys() & set(sys.argv[1:2]) or every
        return {name: every[name] | ours for name in every if name in asked}

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Trainer, model and data set."""
        parser.add_lightning_class_args(FederatedTrainer, "trainer")
        parser.set_defaults({f"trainer.{name}": value for name, value in self.trainer_defaults.items()})
        parser.add_lightning_class_args(RoundModule, "model", subclass_mode=True)
        parser.add_subclass_arguments(DataSet, "data", required=True)
        for name, size in LINKED.items():
            parser.link_arguments("data", f"model.init_args.{name}", _of_the_data(size), apply_on="instantiate")

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **options: Any) -> LightningArgumentParser:
        """The parser of a command; `predict` may be told where to write, `fit` when to stop and what to leave."""
        parser = super()._prepare_subcommand_parser(klass, subcommand, **options)
        if subcommand == "predict":
            text = "File of the predictions, .csv or .parquet (default: predictions.csv in the run's folder)."
            parser.add_argument("--output", type=str | None, default=None, help=text)
            self._subcommand_method_arguments[subcommand].append("output")
        if subcommand == "fit":
            text = f"Rounds without a lower validation loss that end a fit; 0: none (default: {ON_TABLES} on tables)."
            parser.add_argument("--patience", type=int | None, default=None, help=text)
            text = "Whether to write figures and report.html into the run's folder."
            parser.add_argument("--report", type=bool, default=True, help=text)
            self._subcommand_method_arguments[subcommand] += ["patience", "report"]
        return parser

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse the command line; refuse one that loses protection on the way."""
        refuse_options_before_files(sys.argv[1:])
        arguments = self._arguments = with_defaults(sys.argv[1:])
        with suggesting(arguments):
            self.config = parser.parse_args(arguments)
        command = self.config.subcommand
        trainer = self.config[command].get("trainer")
        require(isinstance(trainer, Namespace), "trainer", "hold options by name", trainer)

        def read(of: Any) -> Any:
            whole = [*of, *([] if command in of else [command])]
            return parser.parse_args(whole, _skip_validation=True)[command]

        refuse_lost_protection(read, arguments, self.config[command])

    def _parse_ckpt_path(self) -> None:
        """Take the options of model and data from the checkpoint; what the command line says otherwise is not lost."""
        command, given = self.config.subcommand, self.config[self.config.subcommand]
        self._checkpoint = read_checkpoint(given.get("ckpt_path"), command)
        if self._checkpoint is None:
            return
        said = self.parser.parse_args(self._arguments, defaults=False, _skip_validation=True)[command].as_dict()
        model, data = self._model_of_the_checkpoint(said["model"]), self._data_of_the_checkpoint(said["data"])
        self.config = self.parser.parse_object({command: {"model": model, **data}}, self.config)

    def _model_of_the_checkpoint(self, stated: dict[str, Any]) -> dict[str, Any]:
        """The checkpoint's model, with a scheduler and a path of computation that the command line chooses."""
        assert self._checkpoint is not None
        kept = model_of(self._checkpoint, list(LINKED))
        for found in differences(stated, kept, "model"):
            if self.config.subcommand == "fit" or found[0] == "model":
                if found[0].rpartition(".")[2] not in FREE:
                    refuse(found)
            else:
                _note(f"{found[0]} is {found[1]!r} as in the checkpoint, not {found[2]!r} as the command line says")
        own = {name: value for name, value in stated.get(OPTIONS, {}).items() if name in (*FREE, "lr_scheduler")}
        return {CLASS: kept[CLASS], OPTIONS: kept[OPTIONS] | own}

    def _data_of_the_checkpoint(self, stated: dict[str, Any]) -> dict[str, Any]:
        """The data that the command line names, with the checkpoint's options where it is silent."""
        assert self._checkpoint is not None
        command, kept = self.config.subcommand, data_of(self._checkpoint)
        kind: Any = locate(stated[CLASS])
        if kept is None or f"{kind.__module__}.{kind.__qualname__}" != kept[CLASS]:
            return {}
        if issubclass(kind, ClientTables):
            encoding = stated.get(OPTIONS, {}).get("encoding") or str(self.config[command].ckpt_path)
            anew = {"representations": "rows"} if command == "fit" else {}  # a resumed fit is on its own network
            stated = {CLASS: kept[CLASS], OPTIONS: {**stated.get(OPTIONS, {}), "encoding": encoding, **anew}}
            return {"data": stated if command != "fit" else overlaid(kept, stated)}
        for found in differences(stated, kept, "data"):
            if command == "fit":
                refuse(found)
            elif command != "predict":
                _note(f"{found[0]} is {found[2]!r}, while the model was trained with {found[1]!r}")
        return {"data": overlaid(kept, stated)}

    def before_instantiate_classes(self) -> None:
        """Refuse a seed that nothing here would use; let loggers write below the trainer's folder."""
        given = self.config[self.config.subcommand]
        seed = given.get("seed_everything")
        for key, linked in (("model", LINKED.keys()), ("data", set())):
            stated = vars(given[key].get(OPTIONS) or Namespace())
            options = {name: value for name, value in stated.items() if name not in linked}
            require_parts(cast(Any, locate(given[key][CLASS])), options)
        unused = seed is None or seed is False
        require(unused, "seed_everything", "be left out, as the seeds of model and data determine everything", seed)
        if given.get("output") is not None:
            require_ending(Path(given.output))
        if self.config.subcommand != "fit":
            self.save_config_callback = None  # the run that is looked at has its own
            if _is_the_default(given.trainer.logger):
                given.trainer.logger = False
        root = os.path.expanduser(given.trainer.default_root_dir or ROOT)

        def logger(kind: type[Logger], *args: Any, **options: Any) -> Logger:
            return kind(*args, **options | ({"save_dir": root} if options.get("save_dir") == BELOW_ROOT else {}))

        self.parser.add_instantiator(logger, Logger)

    def instantiate_classes(self) -> None:
        """Data, model and trainer."""
        super().instantiate_classes()
        self.datamodule = ClientGraphData(cast(DataSet, self.datamodule))


def _stated_once(text: str) -> Any:
    """What a parser reads of a text in YAML in which no name stands twice; a null within parts comes back as `None`."""
    require_names_once(text)
    return None if text == str(None) else READ(text)


def _of_the_data(size: Callable[[DataSet], int]) -> Callable[[DataSet], int]:
    """What a model learns from a data set."""

    def of(data: DataSet) -> int:
        return size(data)

    return of


def _is_the_default(logger: Any) -> bool:
    """Whether a configured logger is the one that commands have without a word of the user."""
    options = logger.get("init_args") if isinstance(logger, Namespace) else None
    return options is not None and options.save_dir == BELOW_ROOT and options.name == "gfl" and options.version is None


def _note(sentence: str) -> None:
    print(f"note: {sentence}.", file=sys.stderr)


def with_defaults(args: list[str]) -> list[str]:
    """Arguments with model and data named where no configuration file and no argument names them.

    They are those of the checkpoint, if one is named. They cannot be defaults of the parser: a configuration that names
    another class would inherit their values.
    """
    if not args or any(a.split("=")[0] in ("-c", "--config", "-h", "--help") for a in args):
        return args
    missing = {"--model": GFL.__name__, "--data": DNC.__name__}
    path = _value_of("--ckpt_path", args)
    if path is not None:
        checkpoint = read_checkpoint(path, args[0])
        assert checkpoint is not None
        data = data_of(checkpoint)
        missing["--model"] = model_of(checkpoint, ())[CLASS]
        missing["--data"] = missing["--data"] if data is None else data[CLASS]
        if data is not None and not any(a.startswith("--data") for a in args):
            _require_data(args[0], locate(data[CLASS]))
    named = {a.split("=")[0] for a in args}
    return [args[0], *(f"{key}={kind}" for key, kind in missing.items() if key not in named), *args[1:]]


def _require_data(command: str, kind: Any) -> None:
    """Refuse a command without data where these are files, which a checkpoint does not hold."""
    if issubclass(kind, DataSet) and kind.files:
        name, first = kind.__name__, kind.files[0]
        raise InputError(
            f"data must be given to {command}, as the checkpoint holds none: --data {name} --data.{first} FILE, or "
            "--config with the config.yaml of its run, got nothing."
        )


def _value_of(option: str, args: list[str]) -> str | None:
    """What an option is given as, if it is."""
    for place, argument in enumerate(args):
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
        if argument == option and place + 1 < len(args):
            return args[place + 1]
    return None
