"""Whether a start-up kit can be used: whole, its key its owner's alone, its certificate this authority's and valid."""

from __future__ import annotations

import json
import socket
import stat
from datetime import datetime, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from gfl_lightning.checks import InputError, require

AUTHORITY = "rootCA.pem"


def require_kit(folder: Path, role: str) -> None:
    """Refuse the kit of a ``server`` or ``client`` that NVFlare could not start from, before anything is started."""
    startup = folder / "startup"
    for name in (f"{role}.key", f"{role}.crt", AUTHORITY, f"fed_{role}.json", "sub_start.sh"):
        require((startup / name).is_file(), "DIR", f"hold startup/{name}, as prepare wrote it", str(folder))
    require((folder / "local" / "resources.json").is_file(), "DIR", "hold local/resources.json", str(folder))
    key = startup / f"{role}.key"
    mode = stat.S_IMODE(key.stat().st_mode)
    require(not mode & 0o077, str(key), "be readable by its owner alone (chmod 600)", f"mode {mode:o}")
    _require_certificate(startup / f"{role}.crt", key, startup / AUTHORITY)


def require_free_port(folder: Path) -> None:
    """Refuse to start a server whose port somebody else listens on."""
    port = int(_address(folder).rpartition(":")[2])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as taken:
            raise InputError(f"server.port must be free on this machine, got {port}: {taken.strerror}.") from taken


def _address(folder: Path) -> str:
    """Host and port on which the server of a kit listens."""
    file = folder / "startup" / "fed_server.json"
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["servers"][0]["service"]["target"])
    except (ValueError, KeyError, IndexError, TypeError) as broken:
        raise InputError(f"{file} must be as prepare wrote it, got {type(broken).__name__}.") from broken


def _require_certificate(file: Path, key: Path, authority: Path) -> None:
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        root = x509.load_pem_x509_certificate(authority.read_bytes())
        private = load_pem_private_key(key.read_bytes(), password=None)
    except (ValueError, TypeError) as broken:
        raise InputError(f"{file.parent} must hold PEM files as prepare wrote them, got {broken}.") from broken
    same = _plain(certificate.public_key()) == _plain(private.public_key())
    require(same, str(file), f"belong to {key.name}", "the certificate of another key")
    try:
        certificate.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature) as foreign:
        raise InputError(f"{file} must be signed by {authority.name}, got one of another authority.") from foreign
    until = certificate.not_valid_after_utc
    require(datetime.now(timezone.utc) < until, str(file), "be valid still; prepare anew", f"until {until:%Y-%m-%d}")


def _plain(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
