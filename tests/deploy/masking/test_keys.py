"""Keys on disk are whole and for their owner; what sites have opened survives a restart."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.masking.keys import AgreementKey, Identity, is_signed_by, locked, unlocked
from gfl_lightning.deploy.masking.openings import Openings
from gfl_lightning.deploy.masking.ticket import Ticket


def test_an_identity_is_kept_in_a_file_for_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "north" / "identity.key"
    made = Identity.kept_in(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert Identity.kept_in(file).public == made.public != Identity.new().public
    assert is_signed_by(made.public, made.sign(b"text"), b"text")
    assert not is_signed_by(made.public, made.sign(b"text"), b"other")
    assert not is_signed_by(b"short", made.sign(b"text"), b"text")
    os.chmod(file, 0o644)
    with pytest.raises(InputError, match="must hold a key of 32 bytes that only its owner can read"):
        Identity.kept_in(file)


def test_a_box_opens_for_its_purpose_alone() -> None:
    key, other = bytes(32), b"k" * 32
    box = locked(key, b"secret", b"purpose")
    assert unlocked(key, box, b"purpose") == b"secret"
    assert locked(key, b"secret", b"purpose") != box
    assert (
        unlocked(other, box, b"purpose") is unlocked(key, box, b"else") is unlocked(key, box[:-1], b"purpose") is None
    )


def test_a_degenerate_key_is_refused() -> None:
    with pytest.raises(InputError, match="a public key must be a point of X25519's large group"):
        AgreementKey.new().agree(bytes(32), b"")


def test_no_two_purposes_have_the_same_context() -> None:
    """Lengths go before parts: moving a letter from one part to the next makes another context."""
    tickets = [Ticket("a", 1, "b"), Ticket("a", 11, "b"), Ticket("a1", 1, "b"), Ticket("a", 1, "1b")]
    contexts = [t.context(p, *q) for t in tickets for p in ("x", "y") for q in ((), ("s",), ("s", "t"), ("st",))]
    assert len(set(contexts)) == len(contexts)


def test_what_was_opened_survives_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "openings.jsonl"
    Openings(file).record(Ticket("run", 3, "train"), ["b", "a", "c"], sealed=False)
    Openings(file).record(Ticket("run", 3, "train"), ["a", "b", "c"], sealed=False)
    Openings(file).record(Ticket("run", 4, "share"), ["a", "b"], sealed=True)
    assert len(file.read_text().strip().splitlines()) == 1
    assert file.stat().st_mode & 0o777 == 0o600
    for other in (["a", "b"], ["a", "b", "c", "d"]):
        with pytest.raises(InputError, match="train of round 3 must be opened over a, b, c as before"):
            Openings(file).record(Ticket("run", 3, "train"), other, sealed=False)
    Openings(file).record(Ticket("another", 3, "train"), ["a", "b"], sealed=False)


def test_an_opening_that_could_not_be_written_down_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a full disk leaves it: the site has not answered, refuses until there is room, and starts again."""
    file, ticket = tmp_path / "openings.jsonl", Ticket("run", 3, "train")
    openings = Openings(file)
    openings.record(Ticket("run", 2, "train"), ["a", "b", "c"], sealed=False)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("gfl_lightning.deploy.masking.openings.os.fsync", full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                openings.record(ticket, ["a", "b", "c"], sealed=False)
    with file.open("a") as stream:
        stream.write('{"sum": ["run", 3, "tr')
    openings.record(Ticket("run", 4, "train"), ["a", "b", "c"], sealed=False)
    for number in (2, 4):
        with pytest.raises(InputError, match="must be opened over a, b, c as before"):
            Openings(file).record(Ticket("run", number, "train"), ["a", "b"], sealed=False)
