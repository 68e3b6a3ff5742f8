"""A transport that loses what some sites are asked or answer, as a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import safetensors.torch
from torch import Tensor

from gfl_lightning.deploy.codec import CHECKSUM, LENGTH, MARK
from gfl_lightning.deploy.driver import Driver
from gfl_lightning.deploy.transport import Transport

How = Literal["asked", "answered", ""]
Lost = Callable[[str, int, str], How]


@dataclass
class Flaky(Transport):
    """A transport that loses what some sites answer, or what they are asked, in some phases of some rounds."""

    inner: Transport
    lost: Lost
    seen: list[tuple[str, int, str, bytes]] = field(default_factory=list)

    def exchange(
        self, phase: str, blobs: Mapping[str, bytes], timeout: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        t = json.loads(header(next(iter(blobs.values()))))["round"]
        how = {site: self.lost(phase, t, site) for site in blobs}
        reached = {site: blob for site, blob in blobs.items() if how[site] != "asked"}
        replies, missing = self.inner.exchange(phase, reached, timeout)
        self.seen += [(phase, t, site, blob) for site, blob in replies.items()]
        kept = {site: reply for site, reply in replies.items() if how[site] != "answered"}
        return kept, missing | {site: "lost" for site in blobs if site not in kept}


def header(blob: bytes) -> bytes:
    text = blob[len(MARK) + CHECKSUM :]
    return text[LENGTH : LENGTH + int.from_bytes(text[:LENGTH], "big")]


def tensors(blob: bytes) -> dict[str, Tensor]:
    """The tensors of a blob."""
    return safetensors.torch.load(blob[len(MARK) + CHECKSUM + LENGTH + len(header(blob)) :])


def flaky_driver(made: Driver, lost: Lost) -> Driver:
    """A driver whose transport loses what a test says."""
    made.transport = made.ask.transport = Flaky(made.transport, lost)
    return made
