"""A CSV or Parquet file as a data frame that knows which line of the file each row is."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray
from pandas.errors import EmptyDataError, ParserError, ParserWarning

from gfl_lightning.checks import InputError, require

ENDINGS = (".csv", ".parquet")
ARROW = (pyarrow.ArrowException, pyarrow.ArrowInvalid)
NULLABLE = {
    pyarrow.bool_(): pd.BooleanDtype(),
    pyarrow.string(): pd.StringDtype(),
    pyarrow.large_string(): pd.StringDtype(),
    **{
        getattr(pyarrow, name.lower())(): getattr(pd, f"{name}Dtype")()
        for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64")
    },
}


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a file.

    >>> Table(Path("samples.parquet"), pd.DataFrame({"client": ["a", "b"]})).where(1)
    'samples.parquet row 2'

    Args:
        path: the file.
        frame: its rows, in nullable types.
        separator: of the cells of a CSV file.
    """

    path: Path
    frame: pd.DataFrame
    separator: str = ","

    @property
    def name(self) -> str:
        """The file's name, as messages give it."""
        return self.path.name

    def __len__(self) -> int:
        return len(self.frame)

    def where(self, row: int) -> str:
        """File and line (CSV, the header being line 1) or row (Parquet, from 1) of a row."""
        if self.path.suffix == ".parquet":
            return f"{self.name} row {row + 1}"
        return f"{self.name} line {self._lines[row]}"

    def text(self, column: str) -> pd.Series:
        """A column as text, missing where it is empty."""
        values = self.frame[column]
        return values if isinstance(values.dtype, pd.StringDtype) else values.astype("string")

    @cached_property
    def _lines(self) -> NDArray[np.int64]:
        """The line on which each row begins; cells may hold line breaks and lines may be empty."""
        begins, before = [], 0
        with self.path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=self.separator)
            for cells in reader:
                if cells:
                    begins.append(before + 1)
                before = reader.line_num
        return np.array(begins[1:])


def read_table(
    path: str | Path, argument: str, as_text: Mapping[str, Sequence[str]], missing: Sequence[str], separator: str
) -> Table:
    """Read a file; a problem with the file as a whole is an :class:`InputError`.

    Cells are missing if they are in ``missing``. Columns in ``as_text`` keep their cells as they stand, and have
    markers of missing cells of their own.
    """
    file = Path(path)
    with _refusing(path, argument):
        if file.suffix == ".parquet":
            frame = _read_parquet(file)
        else:
            names = column_names(path, argument, separator)
            frame = pd.read_csv(
                file,
                header=0,
                names=names,
                index_col=False,
                dtype={name: "string" for name in names if name in as_text},
                na_values={name: list(as_text.get(name, missing)) for name in names},
                dtype_backend="numpy_nullable",
                low_memory=False,
                **_dialect(separator),
            )
            if len(frame) and frame.iloc[:, -1].isna().any():
                _refuse_short_rows(file, argument, separator)
    require(len(frame) > 0, argument, "hold at least one row", str(path))
    return Table(file, frame, separator)


def column_names(path: str | Path, argument: str, separator: str) -> list[str]:
    """Names of a file's columns."""
    file = Path(path)
    require_table(path, argument)
    with _refusing(path, argument):
        if file.suffix == ".parquet":
            names = [str(name) for name in _read_parquet(file, empty=True).columns]
        else:
            header = pd.read_csv(file, header=None, nrows=1, dtype=str, **_dialect(separator)).iloc[0]
            names = [str(cell) for cell in header]
    repeated = sorted({name for name in names if names.count(name) > 1})
    require(not repeated, argument, "name every column once", f"{str(path)!r} with {repeated} twice")
    return names


def require_table(path: str | Path, argument: str) -> None:
    """Refuse what is no file, or one of another kind."""
    require(Path(path).suffix in ENDINGS, argument, "be a .csv or .parquet file", str(path))
    require(Path(path).is_file(), argument, "name a file", str(path))


def require_column(argument: str, column: str, names: Sequence[str], path: str | Path) -> None:
    """Refuse a file without a column."""
    require(column in names, argument, f"be a column of {Path(path).name} ({', '.join(names)})", column)


def _dialect(separator: str) -> dict[str, Any]:
    return {"sep": separator, "encoding": "utf-8-sig", "keep_default_na": False}


def _refuse_short_rows(file: Path, argument: str, separator: str) -> None:
    """Refuse rows with fewer cells than there are columns, which pandas takes for rows with empty ones."""
    with file.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, delimiter=separator)
        columns = len(next(filter(None, reader), []))
        for cells in reader:
            fits = not cells or len(cells) >= columns
            require(
                fits,
                argument,
                f"have {columns} cells in every row",
                f"{len(cells)} in {file.name} line {reader.line_num}",
            )


def _read_parquet(file: Path, empty: bool = False) -> pd.DataFrame:
    read = pyarrow.parquet.ParquetFile(file)
    nested = [field.name for field in read.schema_arrow if pyarrow.types.is_nested(field.type)]
    require(not nested, "columns", f"hold one value in each cell of {file.name}", f"lists or records in {nested}")
    table = read.schema_arrow.empty_table() if empty else read.read()
    return table.replace_schema_metadata(None).to_pandas(types_mapper=NULLABLE.get)


@contextmanager
def _refusing(path: str | Path, argument: str) -> Iterator[None]:
    """Turn what readers raise into a sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ParserWarning)
            yield
    except InputError:
        raise
    except (ParserError, ParserWarning, EmptyDataError, csv.Error, ValueError, OSError, *ARROW) as broken:
        kind = "Parquet" if Path(path).suffix == ".parquet" else "CSV"
        reason = str(broken).strip().splitlines()[0].removeprefix("Error tokenizing data. C error: ").rstrip(".")
        raise InputError(f"{argument} must be a readable {kind} file, got {str(path)!r}: {reason}.") from broken
