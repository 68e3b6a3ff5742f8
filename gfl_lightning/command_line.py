"""What all commands have in common: how arguments are refused, and how a command ends."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from gfl_lightning.checks import InputError

EXIT_BAD_INPUT, EXIT_DIVERGED, EXIT_NOTHING, EXIT_INTERRUPTED, EXIT_TERMINATED = 2, 3, 4, 130, 143


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence.

    >>> Parser().parse_args(["--nope"])
    Traceback (most recent call last):
    gfl_lightning.checks.InputError: Unrecognized arguments: --nope.
    """

    def error(self, message: str) -> NoReturn:
        """Refuse."""
        raise InputError(f"{message[0].upper()}{message[1:]}." if message else message)


@contextmanager
def answered(interrupted: str = "") -> Iterator[None]:
    """End the program where what is done here fails: one sentence and exit code 2 where the user can mend it.

    Warnings of this program are a sentence each, said once.

    Args:
        interrupted: what Ctrl-C leaves behind, in words; it ends the program with exit code 130.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _plainly(warnings.showwarning)
            yield
    except KeyboardInterrupt:
        if interrupted:
            print(f"\n{interrupted}", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        sentence = str(error) if isinstance(error, InputError) else _sentence_of(error)
        if sentence is None:
            raise
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)


def _plainly(show: Callable[..., None]) -> Callable[..., None]:
    """A way to show warnings in which those of this program are one plain sentence, whatever raised them again."""
    said: set[str] = set()

    def shown(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if category.__module__.partition(".")[0] != __package__:
            show(message, category, *rest)
        elif str(message) not in said:
            said.add(str(message))
            print(f"warning: {message}", file=sys.stderr)

    return shown


def _sentence_of(error: Exception) -> str | None:
    from gfl_lightning.lit.failures import sentence_of  # noqa: PLC0415  # seconds of imports, which no help waits for

    return sentence_of(error)
