"""Two hosts of a test: network namespaces with a cable between them, where this user may make any."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NAMES = Path("/etc/netns")


class NoNamespacesError(RuntimeError):
    """A test may not make network namespaces here."""


@dataclass(frozen=True)
class Hosts:
    """Two namespaces; the second reaches the first by a name.

    Args:
        server: the first.
        site: the second.
        name: of the first, as both know it.
    """

    server: str
    site: str
    name: str = "fl.example.org"

    def plug(self, up: bool) -> None:
        """Pull the cable, or put it back."""
        _ip("-n", self.site, "link", "set", "eth-site", "up" if up else "down")


@contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Make them, and remove them at the end."""
    hosts = Hosts(f"gfl-server-{os.getpid()}", f"gfl-site-{os.getpid()}")
    both = (hosts.server, hosts.site)
    try:
        try:
            for one in both:
                _ip("netns", "add", one)
            ends = (
                "eth-server",
                "netns",
                hosts.server,
                "type",
                "veth",
                "peer",
                "name",
                "eth-site",
                "netns",
                hosts.site,
            )
            _ip("link", "add", "name", *ends)
            for one, link, address in zip(both, ("eth-server", "eth-site"), ("10.77.0.1", "10.77.0.2"), strict=True):
                _ip("-n", one, "address", "add", f"{address}/24", "dev", link)
                _ip("-n", one, "link", "set", link, "up")
                _ip("-n", one, "link", "set", "lo", "up")
                (NAMES / one).mkdir(parents=True)
                (NAMES / one / "hosts").write_text(f"127.0.0.1 localhost\n10.77.0.1 {hosts.name}\n")
        except (OSError, subprocess.CalledProcessError) as refused:
            raise NoNamespacesError(str(refused)) from refused
        yield hosts
    finally:
        for one in both:
            subprocess.run(["ip", "netns", "delete", one], check=False, capture_output=True)
            shutil.rmtree(NAMES / one, ignore_errors=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
