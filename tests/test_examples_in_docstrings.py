"""Every public class shows how it is used; the examples themselves run with the tests."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import callbacks
import gfl_lightning
from gfl_lightning.attacks.attack import Attack
from gfl_lightning.baselines.networks.architecture import Architecture
from gfl_lightning.engine.engine import Engine
from gfl_lightning.federated.server.optimizer import ServerOptimizer
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.encoders.encoder import Encoder
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism

CONTRACTS = (Aggregator, Architecture, Attack, DataSet, Encoder, Engine, Mechanism, RoundModule, ServerOptimizer)


def public_classes() -> list[type]:
    """What the root names, callbacks, and every class of the package that fulfils a contract of extension."""
    for module in pkgutil.walk_packages(gfl_lightning.__path__, "gfl_lightning."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: set[type] = {getattr(gfl_lightning, name) for name in gfl_lightning.__all__}
    found |= {getattr(callbacks, name) for name in callbacks.__all__}
    waiting: list[type] = list(CONTRACTS)
    while waiting:
        kind = waiting.pop()
        found.add(kind)
        waiting += [one for one in type.__subclasses__(kind) if one.__module__.startswith("gfl_lightning")]
    return sorted(found, key=lambda kind: kind.__qualname__)


@pytest.mark.parametrize("kind", public_classes(), ids=lambda kind: kind.__qualname__)
def test_a_public_class_shows_how_it_is_used(kind: type) -> None:
    assert ">>>" in (inspect.getdoc(kind) or "")
