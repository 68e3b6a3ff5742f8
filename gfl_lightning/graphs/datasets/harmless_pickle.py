"""Planetoid's raw files are pickles, which can run programs when read: these may hold arrays and nothing else.

A pickle is a program. It is run here with stand-ins in the place of everything that it names: they take what a file of
Planetoid says to the real ones and refuse all else, so that a file which they have seen to its end does nothing but
make arrays of numbers whose parts fit each other.
"""

from __future__ import annotations

import math
import pickle
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.arrays import Array

NUMBERS = re.compile(r"[<>|=]?[biuf][1248]")
ORDERS, WITHOUT_PARTS = ("<", ">", "|", "="), (None, None, None, -1, -1, 0)
PARTS = ("indptr", "indices", "data")
TOLD = {"format": str, "maxprint": int, "_cs_matrix__has_sorted_indices": bool, "_has_sorted_indices": bool}
TOLD |= {"_has_canonical_format": bool}


class _Closed(type):
    """Classes that a pickle may call, but not change."""

    def __setattr__(cls, name: str, value: Any) -> NoReturn:
        _refuse(f"an attribute {name}")


class Dtype(metaclass=_Closed):
    """Stands for ``numpy.dtype``: a plain type of numbers."""

    def __init__(self, code: Any, *copying: Any) -> None:
        _require(isinstance(code, str) and NUMBERS.fullmatch(code) is not None, f"numbers of type {code!r}")
        self.code = code.lstrip("<>|=")
        self.order = "="

    def __setstate__(self, state: Any) -> None:
        plain = isinstance(state, tuple) and state[0] in (3, 4) and state[1] in ORDERS and state[2:] == WITHOUT_PARTS
        _require(plain, f"numbers in parts {state!r}"[:80])
        self.order = state[1]


class Numbers(metaclass=_Closed):
    """Stands for ``numpy.ndarray``: numbers of a plain type, as many as its shape says."""

    value: Array

    def __setstate__(self, state: Any) -> None:
        _require(isinstance(state, tuple) and len(state) == 5, "an array without shape")
        _, shape, kind, _, data = state
        _require(isinstance(kind, Dtype), f"an array of {type(kind).__name__}")
        sized = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
        data = data.encode("latin1") if isinstance(data, str) else data
        _require(sized and isinstance(data, bytes), "an array that is no block of bytes")
        dtype = np.dtype(kind.order + kind.code)
        _require(len(data) == dtype.itemsize * math.prod(shape), f"{len(data)} bytes for an array of {shape}")
        self.__dict__["value"] = np.frombuffer(data, dtype).reshape(shape)


class Sparse(metaclass=_Closed):
    """Stands for ``scipy.sparse.csr_matrix``: rows of numbers in columns that exist."""

    def __setstate__(self, state: Any) -> None:
        told = {} if not isinstance(state, dict) else {name: state[name] for name in TOLD if name in state}
        plain = all(type(value) is TOLD[name] for name, value in told.items())
        _require(plain and set(state) == {"_shape", *PARTS, *told}, "a sparse matrix of other parts")
        parts, shape = [state[name] for name in PARTS], state["_shape"]
        _require(all(isinstance(part, Numbers) and part.value.ndim == 1 for part in parts), "a matrix of no arrays")
        indptr, indices, data = (part.value for part in parts)
        sized = isinstance(shape, tuple) and len(shape) == 2 and all(type(size) is int and size >= 0 for size in shape)
        _require(sized, "a sparse matrix without a shape")
        _require(all(part.dtype in (np.int32, np.int64) for part in (indptr, indices)), "places that are no integers")
        rows = len(indptr) == shape[0] + 1 and indptr[0] == 0 and bool((np.diff(indptr) >= 0).all())
        within = len(indices) == len(data) == indptr[-1] and bool(((indices >= 0) & (indices < shape[1])).all())
        _require(bool(rows and within), "a sparse matrix with entries outside of it")


class Reconstruct(metaclass=_Closed):
    """Stands for numpy's function that makes an empty array."""

    def __new__(cls, kind: Any, shape: Any, code: Any) -> Any:
        """What is made."""
        _require(kind is Numbers and shape == (0,) and code in ("b", b"b"), "an array of another kind")
        return Numbers()


class Reconstructor(metaclass=_Closed):
    """Stands for Python's function that makes an empty object."""

    def __new__(cls, kind: Any, base: Any, state: Any) -> Any:
        """What is made."""
        _require(kind is Sparse and base is object and state is None, "an object of another kind")
        return Sparse()


class Lists(metaclass=_Closed):
    """Stands for ``collections.defaultdict``: lists by key."""

    def __new__(cls, made: Any) -> Any:
        """What is made."""
        _require(made is list, f"a dictionary of {made!r}"[:80])
        return defaultdict(list)


class Encode(metaclass=_Closed):
    """Stands for ``_codecs.encode``: the bytes of a text."""

    def __new__(cls, text: Any, code: Any) -> Any:
        """What is made."""
        _require(isinstance(text, str) and code == "latin1", f"a text in {code!r}"[:80])
        return text.encode("latin1")


STAND_INS: dict[tuple[str, str], type] = {
    ("collections", "defaultdict"): Lists,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("__builtin__", "object"): object,
    ("builtins", "object"): object,
    ("_codecs", "encode"): Encode,
    ("numpy", "ndarray"): Numbers,
    ("numpy", "dtype"): Dtype,
    ("numpy.core.multiarray", "_reconstruct"): Reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): Reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): Sparse,
    ("scipy.sparse._csr", "csr_matrix"): Sparse,
    ("copy_reg", "_reconstructor"): Reconstructor,
    ("copyreg", "_reconstructor"): Reconstructor,
}


class HarmlessUnpickler(pickle.Unpickler):
    """Follows a pickle of arrays, sparse matrices, lists and dictionaries; anything else is refused before it exists.

    >>> import io
    >>> HarmlessUnpickler(io.BytesIO(pickle.dumps(print))).load()
    Traceback (most recent call last):
    _pickle.UnpicklingError: builtins.print is no array
    """

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a class, if it is one of arrays."""
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError(f"{module}.{name} is no array")
        return STAND_INS[module, name]


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


def _require(condition: bool, found: str) -> None:
    if not condition:
        _refuse(found)


def _refuse(found: str) -> NoReturn:
    raise pickle.UnpicklingError(f"{found} is no array of numbers")
