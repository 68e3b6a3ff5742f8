"""Which code made a result: a digest of the sources that can influence it and of the libraries they stand on."""

from __future__ import annotations

import ast
import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

from gfl_lightning.studies.cell import Cell

PACKAGE = Path(__file__).parent.parent
ALWAYS = (
    *("checks.py", "parts.py", "graphs", "models", "engine", "federated", "privacy", "theory/connectivity.py"),
    *("lit/gfl.py", "studies/assembly.py", "studies/training.py"),
)
BASELINES = ("baselines", "lit/central.py", "lit/local_mlps.py")
PROBES = ("theory", "studies/probes.py")
AUDIT = ("attacks", "audit", "studies/auditing.py")
SHOWN = ("audit/command.py", "audit/figure.py", "audit/page.py")
LIBRARIES = ("torch", "torch-geometric", "numpy", "scipy")


@cache
def fingerprint(model: str, probed: bool = False, audited: bool = False) -> str:
    """The digest for cells of a class of models; comments, docstrings and layout do not count."""
    sources = [*ALWAYS, *(BASELINES if model != "GFL" else ()), *(PROBES if probed else ())]
    sources += AUDIT if audited else ()
    shown = {PACKAGE / name for name in SHOWN}  # what only shows numbers makes none
    files = {file for source in sources for file in _files(PACKAGE / source)} - shown
    digest = hashlib.sha256("".join(f"{name} {value}\n" for name, value in versions().items()).encode())
    for file in sorted(files):
        digest.update(f"{file.relative_to(PACKAGE)}\n".encode())
        digest.update(_code(file.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()[:16]


def fingerprint_of(cell: Cell) -> str:
    """The fingerprint that the record of a cell must carry."""
    return fingerprint(cell.experiment.model, cell.probes > 0, bool(cell.audit))


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that results depend on."""
    return {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES}


def _files(source: Path) -> list[Path]:
    return [source] if source.suffix else sorted(source.rglob("*.py"))


@cache
def _code(source: str) -> str:
    """The syntax tree of a source without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)
