"""A server and its sites on two hosts, which network namespaces stand for: ``pytest -m processes``."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from deploy_builders import SITES
from deploy_processes import deployed, faults, merely_absent, prepare
from network_hosts import NoNamespacesError, two_hosts

pytestmark = pytest.mark.processes


def test_two_hosts_with_a_cable_that_is_pulled(tmp_path: Path) -> None:
    """The sites reach the server's one port by its name; while the cable is out nothing goes on, and then all does."""
    try:
        with two_hosts() as hosts:
            chosen = prepare(tmp_path, 8, host=hosts.name)
            where = {"server": hosts.server} | dict.fromkeys(SITES, hosts.site)
            with deployed(tmp_path, {"north": faults(("pause", "train", 4))}, where) as made:
                made.wait(lambda: made.paused("north", 0), "the pause")
                listening = subprocess.run(
                    ["ip", "netns", "exec", hosts.site, "ss", "-Hltn"], check=True, capture_output=True, text=True
                ).stdout.split("\n")
                outside = [one for one in listening if one and not one.split()[3].startswith(("127.", "[::1]"))]
                assert not outside, "a site listens on nothing that leaves its host"
                hosts.plug(False)
                made.tell("north", signal.SIGCONT)
                time.sleep(6)
                assert len(made.rounds()) == 4
                hosts.plug(True)
                made.wait_for_the_end()
    except NoNamespacesError as refused:
        pytest.skip(f"network namespaces cannot be made here: {refused}")
    assert [one["round"] for one in made.rounds()] == list(range(1, 9))
    torch.testing.assert_close(made.last_weights(), merely_absent(made, chosen), rtol=1e-5, atol=1e-5)
