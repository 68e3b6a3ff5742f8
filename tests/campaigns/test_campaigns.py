"""Some cases of each campaign: no traceback and nothing worse, whatever comes.

Of signals and full disks there are few, as a case is several whole fits; the same moments are tried hundreds of times
where they are short: while a checkpoint is written.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from campaigns.campaign import Campaign, conduct
from campaigns.checkpoints import Checkpoints
from campaigns.commands import Commands
from campaigns.configurations import Configurations
from campaigns.faults import FullDisks, Signals
from campaigns.graph_files import GraphFiles
from campaigns.predictions import Predictions
from campaigns.tables import Tables
from campaigns.writes import Writes

CASES: list[tuple[type[Campaign], int]] = [
    (Configurations, 200),
    (Commands, 100),
    (Tables, 300),
    (Predictions, 300),
    (Checkpoints, 200),
    (GraphFiles, 300),
    (Signals, 3),
    (FullDisks, 8),
    (Writes, 200),
]


@pytest.mark.parametrize(("kind", "cases"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_whatever_comes_is_refused_with_a_sentence_or_runs(kind: type[Campaign], cases: int, tmp_path: Path) -> None:
    tally = conduct(kind(20261118, tmp_path), seconds=math.inf, most=cases)
    assert tally.cases == cases
    assert not tally.failures, "\n".join(tally.failures)
