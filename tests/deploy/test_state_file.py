"""A state file is data: whoever can make its checksum can still only bring containers of tensors."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.state_file import read_state, write_state


@pytest.mark.parametrize(
    "text", [b"{", b'{"tensor": "1"}', b'{"nope": 1}', b'{"items": 3}', b'{"items": [[[], 1]]}', b"[" * 10**5]
)
def test_what_is_no_state_is_refused_whatever_its_checksum(text: bytes, tmp_path: Path) -> None:
    file = tmp_path / "state"
    write_state(file, {"W": torch.ones(2)})
    body = file.read_bytes()[32:]
    tensors = body[8 + int.from_bytes(body[:8], "big") :]
    forged = len(text).to_bytes(8, "big") + text + tensors
    file.write_bytes(hashlib.sha256(forged).digest() + forged)
    with pytest.raises(InputError, match=r"must hold plain containers of tensors, got others \(\w+\)"):
        read_state(file)
    file.write_bytes(body)
    with pytest.raises(InputError, match="must be a whole state file"):
        read_state(file)
