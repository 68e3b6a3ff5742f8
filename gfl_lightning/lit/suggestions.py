"""What a mistyped option may have meant: the nearest names among all that models, data sets and trainer have."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml  # type: ignore[import-untyped]
from pytorch_lightning import Trainer

from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.rounds import FederatedTrainer

PLAIN = (
    "config",
    "print_config",
    "help",
    "ckpt_path",
    "model",
    "data",
    "trainer",
    "output",
    "verbose",
    "patience",
    "report",
)
MOST, BESIDE = 3, 12


@contextmanager
def suggesting(args: Sequence[str]) -> Iterator[None]:
    """Where parsing a command line ends the program, say which options may have been meant."""
    try:
        yield
    except SystemExit as stop:
        hint = nearest_options(args) if stop.code else ""
        if hint:
            print(hint, file=sys.stderr)
        raise


def nearest_options(args: Sequence[str]) -> str:
    """A sentence on the options of a command line that do not exist; empty where all do.

    >>> from gfl_lightning.lit.gfl import GFL
    >>> nearest_options(["fit", "--model=GFL", "--model.momentum=0.9"])
    'Perhaps --model.local.momentum instead of --model.momentum.'
    >>> nearest_options(["fit", "--model=GFL", "--model.agregator.alpha=0.3"])
    'Perhaps --model.aggregator.alpha instead of --model.agregator.alpha.'
    """
    known = set(known_options(args))
    parents = {name.rpartition(".")[0] for name in known}
    found, others = [], []
    given = [*_on_the_command_line(args), *_in_files(args)]
    for name in given:
        mark = f"--{name}"
        wrong = _first_wrong(name, known, parents)
        if not wrong or (wrong != name and wrong in given):
            continue
        near = _nearest(name, known)
        beside = [] if near else _beside(name, known)
        found += [f"{' or '.join(f'--{one}' for one in near)} instead of {mark}"] if near else []
        others += [f"Beside {mark} there would be {', '.join(f'--{one}' for one in beside)}."] if beside else []
    return " ".join(([f"Perhaps {'; '.join(found)}."] if found else []) + others)


def _first_wrong(name: str, known: set[str], parents: set[str]) -> str:
    """The part of a name up to the first word that no option has; empty where it is one, or inside of one's value."""
    words = name.split(".")
    for end in range(1, len(words) + 1):
        part = ".".join(words[:end])
        if part not in known and part not in parents:
            return part if ".".join(words[: end - 1]) in parents else ""
    return ""


def _on_the_command_line(args: Sequence[str]) -> Iterator[str]:
    """The options that a command line names."""
    for argument in args:
        name = argument.removeprefix("--").partition("=")[0].removesuffix("+")
        if argument.startswith("--") and not name.endswith(".help"):
            yield name


def _in_files(args: Sequence[str]) -> Iterator[str]:
    """The options of data and model that its configuration files name, as a command line would."""
    for content in _files(args):
        for prefix in ("data", "model"):
            yield from _names(content.get(prefix), prefix)


def _names(value: Any, name: str) -> Iterator[str]:
    """The names of all that stands in a part of a configuration."""
    inner = value.get("init_args", {} if "class_path" in value else value) if isinstance(value, dict) else None
    for key, part in (inner or {}).items() if isinstance(inner, dict) else ():
        yield f"{name}.{key}"
        yield from _names(part, f"{name}.{key}")


def _files(args: Sequence[str]) -> Iterator[dict[Any, Any]]:
    """The configuration files of a command line that can be read."""
    for place, argument in enumerate(args):
        option, _, value = argument.partition("=")
        value = value or (args[place + 1] if place + 1 < len(args) else "")
        if option in ("-c", "--config") and Path(value).is_file():
            with suppress(yaml.YAMLError, UnicodeDecodeError, OSError):
                content = yaml.safe_load(Path(value).read_text(encoding="utf-8"))
                if isinstance(content, dict):
                    yield content


def known_options(args: Sequence[str]) -> Iterator[str]:
    """Every option by its whole name: of the classes that a command line names, or of all that are loaded."""
    yield from PLAIN
    for trainer in (Trainer, FederatedTrainer):
        yield from (f"trainer.{name}" for name in inspect.signature(trainer).parameters)
    for prefix, base in (("model", RoundModule), ("data", DataSet)):
        named = _named(args, prefix)
        kinds = _kinds(base)
        for kind in [one for one in kinds if one.__name__ == named] or kinds:
            yield from _options(kind, prefix)


def _named(args: Sequence[str], prefix: str) -> str:
    """The class that a command line or its configuration names for the model or the data; empty where none does."""
    found = ""
    for content in _files(args):
        part = content.get(prefix)
        found = str(part.get("class_path", found)) if isinstance(part, dict) else found
    for place, argument in enumerate(args):
        option, _, value = argument.partition("=")
        if option == f"--{prefix}":
            found = value or (args[place + 1] if place + 1 < len(args) else "")
    return found.rpartition(".")[2]


def _options(kind: Any, prefix: str) -> Iterator[str]:
    """The options of a class, and of the parts that it may have."""
    hints = get_type_hints(kind.__init__)
    for name in list(inspect.signature(kind).parameters):
        yield f"{prefix}.{name}"
        for part in (hints.get(name), *get_args(hints.get(name))):
            if isinstance(part, type) and part.__module__.startswith("gfl_lightning."):
                for one in _kinds(part):
                    if is_dataclass(one):
                        yield from _options(one, f"{prefix}.{name}")


def _kinds(base: type) -> set[type]:
    derived: list[type] = type.__subclasses__(base)
    return {base}.union(*(_kinds(one) for one in derived))


def _nearest(name: str, known: set[str]) -> list[str]:
    """Options whose last word is the same under the same first one, else those that are spelled alike."""
    top, _, _ = name.partition(".")
    last = name.rpartition(".")[2]
    same = sorted(one for one in known if one.startswith(f"{top}.") and one.rpartition(".")[2] == last)
    return same[:MOST] or get_close_matches(name, sorted(known), n=MOST, cutoff=0.75)


def _beside(name: str, known: set[str]) -> list[str]:
    """The options at the same place, where they are few."""
    place = name.rpartition(".")[0]
    found = sorted(one for one in known if place and one.rpartition(".")[0] == place)
    return found if len(found) <= BESIDE else []
