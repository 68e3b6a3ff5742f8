"""How blobs get to sites and back: the contract of an engine, and sites in the same process for tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass


class Transport(ABC):
    """Delivers one blob to each of some sites and brings their answers back.

    >>> LocalTransport({"north": lambda phase, blob: blob.upper()}).exchange("share", {"north": b"a"}, 1.0)
    ({'north': b'A'}, {})
    """

    @abstractmethod
    def exchange(
        self, phase: str, blobs: Mapping[str, bytes], timeout: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """The replies by site and, for each site without one after ``timeout`` seconds, why."""


@dataclass(frozen=True, eq=False)
class LocalTransport(Transport):
    """Sites in the same process, which answer one after the other.

    Args:
        sites: what each answers to a phase and a blob; an error is no answer.
    """

    sites: Mapping[str, Callable[[str, bytes], bytes]]

    def exchange(
        self, phase: str, blobs: Mapping[str, bytes], timeout: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """Ask each in turn."""
        replies, missing = {}, {}
        for site, blob in blobs.items():
            try:
                replies[site] = self.sites[site](phase, blob)
            except Exception as broken:  # whatever happens at a site, the server goes on without it
                missing[site] = f"{type(broken).__name__}: {broken}"
        return replies, missing
