"""Planetoid's raw files are pickles, which can run programs when read: these may hold arrays and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gfl_lightning.checks import InputError

ALLOWED = {
    ("collections", "defaultdict"),
    ("__builtin__", "list"),
    ("builtins", "list"),
    ("_codecs", "encode"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("scipy.sparse.csr", "csr_matrix"),
    ("scipy.sparse._csr", "csr_matrix"),
    ("copy_reg", "_reconstructor"),
    ("copyreg", "_reconstructor"),
    ("__builtin__", "object"),
    ("builtins", "object"),
}


class HarmlessUnpickler(pickle.Unpickler):
    """Reads arrays, sparse matrices, lists and dictionaries; anything else is refused before it exists.

    >>> import io
    >>> HarmlessUnpickler(io.BytesIO(pickle.dumps(print))).load()
    Traceback (most recent call last):
    _pickle.UnpicklingError: builtins.print is no array
    """

    def find_class(self, module: str, name: str) -> Any:
        """A class, if it is one of arrays."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is no array")
        return super().find_class(module, name)


def require_harmless_pickle(file: Path, argument: str) -> None:
    """Refuse a pickle that holds anything but arrays and containers of them."""
    with refusing(str(file), argument), file.open("rb") as stream:
        HarmlessUnpickler(stream, encoding="latin1").load()


@contextmanager
def refusing(name: str, argument: str = "root") -> Iterator[None]:
    """Turn what reading a file raises into a sentence."""
    try:
        yield
    except OSError:
        raise
    except Exception as broken:
        reason = f"{type(broken).__name__}: {broken}".splitlines()[0].rstrip(".")
        raise InputError(f"{argument} must hold the raw files of Planetoid, got {name!r} ({reason}).") from broken
