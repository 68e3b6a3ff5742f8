"""The secret that noise is drawn from, and what a draw is bound to.

Noise hides a value from everybody who cannot draw it again. It therefore comes from a key that is no part of an
experiment: 256 bits of the operating system, kept in a file of its own or nowhere. And the same draw must never be
added to two different values, as their difference would be free of noise: a draw is bound to what it hides.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.checks import InputError, require, require_count
from gfl_lightning.privacy.noise_source import KEY_BYTES, NoiseSource

HEADER, NAME = "gfl-lightning noise key", re.compile("[0-9a-f]{16}")


@dataclass(frozen=True)
class NoiseKey:
    """source = ChaCha20(BLAKE2b_key(release, numbers, hides)): a stream for each thing that is hidden.

    >>> key = NoiseKey.fresh()
    >>> one, other = (key.source("hidden", 3, hides=digest(W)).normal((2,)) for W in (torch.zeros(2), torch.ones(2)))
    >>> torch.equal(one, other), key
    (False, NoiseKey(reproducible=False))

    Args:
        secret: 32 bytes that nobody else knows.
        reproducible: whether they come from a seed. Such noise hides nothing from those who know the seed. It is not
            bound to what it hides, so that two ways to compute a round can be compared under the same noise.
    """

    secret: bytes = field(repr=False)
    reproducible: bool = False

    @classmethod
    def fresh(cls) -> NoiseKey:
        """A new key from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def of_seed(cls, seed: int) -> NoiseKey:
        """The key of a seed, for experiments that must be repeated and are not private."""
        require_count("noise_seed", seed, least=0)
        return cls(hashlib.blake2b(str(seed).encode(), digest_size=KEY_BYTES, person=b"gfl seed").digest(), True)

    @property
    def name(self) -> str:
        """What the key may be called in public: 16 digits that tell nothing else about it."""
        return hashlib.blake2b(self.secret, digest_size=8, person=b"gfl key name").hexdigest()

    def source(self, release: str, *numbers: int, hides: bytes = b"") -> NoiseSource:
        """The stream of a draw.

        Args:
            release: what is hidden, such as ``hidden`` or ``update``.
            numbers: which one of those: the round, and the client or the step where each has a draw of its own.
            hides: :func:`digest` of everything that decides the value.
        """
        told = f"{release}:{','.join(str(number) for number in numbers)}:".encode()
        what = told if self.reproducible else told + hides
        return NoiseSource(hashlib.blake2b(what, key=self.secret, digest_size=KEY_BYTES, person=b"gfl noise").digest())

    def save(self, folder: Path) -> Path:
        """Write the key into a folder, in a file that its owner alone may read."""
        file = folder / self.file_name(self.name)
        folder.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(f"{HEADER}\n{self.secret.hex()}\n")
            stream.flush()
            os.fsync(stream.fileno())
        return file

    @classmethod
    def load(cls, file: Path) -> NoiseKey:
        """Read a key; a file that others may read too is refused."""
        require(file.is_file(), "noise key", "be a file", str(file))
        open_to_others = stat.S_IMODE(file.stat().st_mode) & 0o077
        require(not open_to_others, "noise key", "be a file that its owner alone may read (chmod 600)", str(file))
        try:
            header, secret = file.read_text().split("\n")[:2]
            key = cls(bytes.fromhex(secret))
        except (UnicodeDecodeError, ValueError) as broken:
            raise InputError(f"noise key must be a file that a fit has written, got {str(file)!r}.") from broken
        whole = header == HEADER and len(key.secret) == KEY_BYTES
        require(whole, "noise key", "be a file that a fit has written", str(file))
        return key

    @staticmethod
    def file_name(name: str) -> str:
        """The file of a key by its name."""
        return f"noise-{name}.key"

    @classmethod
    def find(cls, name: str, folder: Path) -> NoiseKey | None:
        """The key of a name in the folder of a checkpoint, the one above, or the one of the run's checkpoints."""
        digits = isinstance(name, str) and NAME.fullmatch(name) is not None
        require(digits, "noise key", "have a name of 16 digits, as those that a fit writes", name)
        for place in (folder, folder.parent, folder / "checkpoints"):
            if (place / cls.file_name(name)).exists():
                return cls.load(place / cls.file_name(name))
        return None

    @classmethod
    def beside(cls, name: str, folders: Sequence[Path]) -> NoiseKey:
        """The key of a name in one of the folders that a checkpoint may lie in; none is refused."""
        for folder in folders:
            found = cls.find(name, folder)
            if found is not None:
                return found
        raise InputError(
            f"ckpt_path must have its noise key beside it, as every upload would get other noise without it, "
            f"got no {cls.file_name(name)} in {', '.join(map(str, folders)) or 'a known folder'}."
        )


def digest(*parts: Any) -> bytes:
    """32 bytes that are the same only for the same tensors (bit by bit), mappings of them, texts, bytes and numbers.

    >>> digest({"W": torch.zeros(2)}, 0.1) == digest({"W": torch.zeros(2)}, 0.1)
    True
    """
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            state.update(f"{part.dtype}{tuple(part.shape)}".encode())
            state.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        elif isinstance(part, dict):
            state.update(digest(*(one for name in sorted(part) for one in (name, part[name]))))
        else:
            told = part if isinstance(part, bytes) else repr(part).encode()
            state.update(f"{type(part).__name__}{len(told)}:".encode() + told)
    return state.digest()
