"""Keys between two sites: an identity that signs, an agreement by X25519, a key for each purpose by HKDF."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gfl_lightning.checks import InputError
from gfl_lightning.whole_files import whole_file

KEY_BYTES = 32
SIGNATURE_BYTES = 64
NONCE_BYTES = 12
TAG_BYTES = 16


@dataclass(frozen=True)
class Identity:
    """A site's long-lived Ed25519 key: what it announces is signed, so that the server cannot announce for it.

    >>> me = Identity.new()
    >>> is_signed_by(me.public, me.sign(b"hello"), b"hello")
    True
    """

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def new(cls) -> Identity:
        """A fresh one, from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def kept_in(cls, file: Path) -> Identity:
        """The identity in a file, which is made where there is none, readable by its owner alone."""
        if not file.exists():
            with whole_file(file) as scratch:
                scratch.touch(mode=0o600)
                scratch.write_bytes(secrets.token_bytes(KEY_BYTES))
        seed = file.read_bytes()
        if len(seed) != KEY_BYTES or os.stat(file).st_mode & 0o077:
            raise InputError(
                f"{file} must hold a key of {KEY_BYTES} bytes that only its owner can read, got another file."
            )
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @property
    def public(self) -> bytes:
        """What others know it by."""
        return self.private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """A signature."""
        return self.private.sign(message)


def is_signed_by(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature is that of an identity."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class AgreementKey:
    """One half of an agreement: two sites derive the same key from their own private and the other's public half.

    >>> a, b = AgreementKey.new(), AgreementKey.new()
    >>> a.agree(b.public, b"masks") == b.agree(a.public, b"masks") != a.agree(b.public, b"shares")
    True
    """

    private: X25519PrivateKey = field(repr=False)

    @classmethod
    def new(cls) -> AgreementKey:
        """A fresh one, from the operating system's randomness."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def of(cls, secret: bytes) -> AgreementKey:
        """From its secret."""
        return cls(X25519PrivateKey.from_private_bytes(secret))

    @property
    def secret(self) -> bytes:
        """What determines it."""
        return self.private.private_bytes_raw()

    @property
    def public(self) -> bytes:
        """What it announces."""
        return self.private.public_key().public_bytes_raw()

    def agree(self, public: bytes, context: bytes) -> bytes:
        """The key that both halves have for a purpose; a degenerate public half is refused."""
        try:
            shared = self.private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise InputError(f"a public key must be a point of X25519's large group, got {public.hex()}.") from None
        return derived(shared, context)


def derived(secret: bytes, context: bytes) -> bytes:
    """HKDF-SHA256: a key for one purpose, which tells nothing of the secret or of the keys for others."""
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=context).derive(secret)


def locked(key: bytes, text: bytes, context: bytes) -> bytes:
    """ChaCha20-Poly1305 under a fresh nonce, which goes before."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, context)


def unlocked(key: bytes, box: bytes, context: bytes) -> bytes | None:
    """What was locked; ``None`` where the box is not whole, or for another purpose."""
    try:
        return ChaCha20Poly1305(key).decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], context)
    except (InvalidTag, ValueError):
        return None
