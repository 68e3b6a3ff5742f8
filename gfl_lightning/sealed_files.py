"""Files of tensors and plain containers under a seal: the version of their layout and a checksum of every byte.

A sealed file is an archive as ``torch.save`` writes it, with the seal as its comment: ``torch.load`` reads it too, but
accepts any change of a bit. Whatever is read here was written here, as it was written, and runs no code.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.whole_files import whole_file

VERSION = 2
SEAL = re.compile(rb"gfl_lightning (\d{1,4}) sha256 ([0-9a-f]{64})\Z")
PLAIN = (type(None), bool, int, float, str, torch.Size)
DEEPEST, VALUES_A_BYTE = 64, 4


def write_sealed(content: Any, file: Path) -> None:
    """Write plain data whole or not at all; the file that was there before keeps the name :func:`previous_of`."""
    require_plain(content, file.name)
    blob = seal(content)
    with whole_file(file, previous_of(file)) as scratch:
        scratch.write_bytes(blob)


def seal(content: Any) -> bytes:
    """The sealed file of some content.

    >>> read_sealed(io.BytesIO(seal({"rounds": 3})), "file")
    {'rounds': 3}
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    comment = len(_comment(b""))
    archive = buffer.getvalue()[:-2] + comment.to_bytes(2, "little")  # the archive ends with the length of its comment
    return archive + _comment(archive)


def read_sealed(source: str | Path | IO[bytes], argument: str) -> Any:
    """The content of a sealed file; one that is not sealed, of another version or damaged is refused."""
    if isinstance(source, (str, Path)):
        require(Path(source).is_file(), argument, "name a checkpoint file", str(source))
        blob, name = Path(source).read_bytes(), str(source)
    else:
        blob, name = source.read(), "a stream"
    found = SEAL.search(blob[-100:])
    if found is None:
        missing = f"got {name!r}, which has no seal{_spare(source)}"
        raise InputError(f"{argument} must be a checkpoint of this program, {missing}.")
    require(int(found[1]) == VERSION, argument, f"be a checkpoint of version {VERSION}", f"{name} of {int(found[1])}")
    archive = blob[: -len(found[0])]
    if _comment(archive) != found[0]:
        raise InputError(f"{argument} must be a whole checkpoint, got {name!r}, which is damaged{_spare(source)}.")
    try:
        content = torch.load(io.BytesIO(blob), weights_only=True, map_location="cpu")
    except Exception as unreadable:
        reason = type(unreadable).__name__
        raise InputError(f"{argument} must hold tensors and plain data alone, got {name!r} ({reason}).") from unreadable
    require_plain(content, argument, VALUES_A_BYTE * len(blob))
    return content


def is_sealed(file: Path) -> bool:
    """Whether a file ends as a sealed one does; its content is not looked at."""
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - 100))
        return SEAL.search(stream.read()) is not None


def previous_of(file: Path) -> Path:
    """The name under which a sealed file is kept when another takes its place.

    >>> previous_of(Path("last.ckpt")).name
    'last.previous.ckpt'
    """
    return file.with_name(f"{file.stem}.previous{file.suffix}")


def require_plain(content: Any, argument: str, most: float = math.inf) -> None:
    """Refuse anything but dense tensors, numbers, texts and containers of them, not too deep in each other.

    Args:
        content: the data.
        argument: what it is the content of.
        most: how many values it may have. A list that holds another one twice is few bytes and many values: some of
            them within each other are more than anyone can look at.
    """
    found: list[tuple[Any, str, int]] = [(content, "", 0)]
    while found:
        value, place, depth = found.pop()
        if isinstance(value, dict):
            for key in value:
                require(type(key) in (str, int), argument, f"have texts and whole numbers as keys{place}", key)
        if isinstance(value, dict) or type(value) in (list, tuple, set):
            require(depth < DEEPEST, argument, f"hold containers at most {DEEPEST} deep in each other", "deeper ones")
            most -= len(value)
            require(most >= 0, argument, "hold no more values than its bytes can say", "containers that repeat others")
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            found += [(one, f"{place or ' in'} {name!r}", depth + 1) for name, one in inner]
        elif isinstance(value, Tensor):
            require(is_dense(value), argument, f"hold dense tensors{place}", type(value).__name__)
        else:
            require(type(value) in PLAIN, argument, f"hold plain data{place}", type(value).__name__)


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor has memory of its own for each of its entries, in the usual layout."""
    usual = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested and not tensor.is_meta
    return usual and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def _comment(archive: bytes) -> bytes:
    return f"gfl_lightning {VERSION:04} sha256 {hashlib.sha256(archive).hexdigest()}".encode()


def _spare(source: Any) -> str:
    """A hint at the file that was there before."""
    spare = previous_of(Path(source)) if isinstance(source, (str, Path)) else None
    return f"; the one before it is {str(spare)!r}" if spare is not None and spare.is_file() else ""
