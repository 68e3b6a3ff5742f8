"""Which code made a result: a digest of the sources that can influence it and of the libraries they stand on."""

from __future__ import annotations

import ast
import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

from gfl_lightning.studies.cell import Method

PACKAGE = Path(__file__).parent.parent
ALWAYS = ("checks.py", "graphs", "models", "federated", "privacy", "theory/connectivity.py", "studies/training.py")
LIBRARIES = ("torch", "torch-geometric", "numpy", "scipy")


@cache
def fingerprint(kind: str, probed: bool = False) -> str:
    """The digest for cells of a kind of method; comments, docstrings and layout do not count."""
    sources = [
        *ALWAYS,
        *(("baselines",) if kind != "gfl" else ()),
        *(("theory", "studies/probes.py") if probed else ()),
    ]
    files = {file for source in sources for file in _files(PACKAGE / source)}
    digest = hashlib.sha256("".join(f"{name} {value}\n" for name, value in versions().items()).encode())
    for file in sorted(files):
        digest.update(f"{file.relative_to(PACKAGE)}\n".encode())
        digest.update(_code(file.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()[:16]


def fingerprint_of(method: Method) -> str:
    """The fingerprint that a record of a method must carry."""
    return fingerprint(method.kind, method.probes > 0)


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
