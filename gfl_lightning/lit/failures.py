"""What a failure says to the user: one sentence where something of theirs has failed, nothing where it is a bug.

An exception is a user's mistake if a constructor refused something, or if the system refused a file or memory. Where it
comes out of a library that an option put to work (a logger, a profiler, a scheduler, Lightning's trainer), it is told
with that option's name. Everything else is an error of the program, and keeps its traceback.
"""

from __future__ import annotations

import re
import sys
import traceback
from pathlib import Path

from lightning_fabric.utilities.exceptions import MisconfigurationException

from gfl_lightning.checks import InputError

PACKAGE = str(Path(__file__).parents[1])
CONFIGURATION = "the configuration"
OWNERS = {
    "/torch/optim/lr_scheduler": "model.lr_scheduler",
    "/pytorch_lightning/loggers/": "trainer.logger",
    "/lightning_fabric/loggers/": "trainer.logger",
    "/wandb/": "trainer.logger",
    "/pytorch_lightning/profilers/": "trainer.profiler",
    "/torch/profiler/": "trainer.profiler",
    "/pytorch_lightning/callbacks/": "trainer.callbacks",
    "/pytorch_lightning/plugins/": "trainer.plugins",
    "/pytorch_lightning/trainer/connectors/checkpoint_connector": "ckpt_path",
    "/pytorch_lightning/": "trainer",
    "/lightning_fabric/": "trainer",
    "/jsonargparse/": CONFIGURATION,
}
OUT_OF_MEMORY = re.compile("can't allocate memory|not enough memory|out of memory|storage size calculation overflowed")


def sentence_of(error: BaseException | None) -> str | None:
    """The sentence for an exception; ``None`` where it is an error of the program."""
    mistake = mistake_behind(error)
    if mistake is not None:
        return str(mistake) if isinstance(mistake, InputError) else f"{' '.join(str(mistake).split()).rstrip('.')}."
    while error is not None:
        refused = _refused_by_the_system(error) or _refused_by_the_system(_first_of(error))
        if refused:
            return refused
        option = option_behind(error)
        if option is not None:
            first = _first_of(error) if option == CONFIGURATION else error
            return f"{option} must name what works, got {type(first).__name__}: {_first_line(first)}."
        error = error.__cause__ or error.__context__
    return None


def _refused_by_the_system(error: BaseException) -> str:
    """The sentence for a file or for memory that was refused; nothing where that is not what failed."""
    if isinstance(error, OSError):
        where = f" {str(error.filename)!r}" if error.filename else ""
        return f"files must be readable and writable, got{where} {error.strerror or error}."
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "files must be readable and writable, got a name with a null byte."
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error))):
        return f"the sizes of data and model must fit the memory of this machine, got {_first_line(error)}."
    return ""


def mistake_behind(error: BaseException | None) -> BaseException | None:
    """The user's mistake that an error reports or was raised from: parsers wrap what constructors refuse."""
    while error is not None and not isinstance(error, (InputError, MisconfigurationException)):
        error = error.__cause__ or error.__context__
    return error


def option_behind(error: BaseException) -> str | None:
    """The option that put the code to work in which an exception was raised; none if that code is this program."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(PACKAGE):
            return None
        for place, option in OWNERS.items():
            if place in frame.filename:
                return option
        if not frame.filename.startswith((sys.prefix, sys.base_prefix, "<")):
            return None  # a class of the user's own
    return None


def _first_of(error: BaseException) -> BaseException:
    """What failed first, where a parser has told of it again and again."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
