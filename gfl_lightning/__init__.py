"""Graph federated learning with hidden representation sharing on PyTorch Lightning.

What most programs need is here by name; it is imported when it is first asked for, so that help comes at once.

>>> from gfl_lightning import DNC, Federation
>>> Federation(DNC(num_clients=50).graph).start().round
0
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gfl_lightning.federated.federation import Federation
    from gfl_lightning.federated.local.options import LocalTraining
    from gfl_lightning.federated.participation import Participation
    from gfl_lightning.federated.server.average import Average
    from gfl_lightning.federated.server.fed_adam import FedAdam
    from gfl_lightning.federated.server.momentum import Momentum
    from gfl_lightning.graphs.client_graph import ClientGraph
    from gfl_lightning.graphs.datasets.citations import Citations
    from gfl_lightning.graphs.datasets.client_graph_file import ClientGraphFile
    from gfl_lightning.graphs.datasets.dnc import DNC
    from gfl_lightning.graphs.datasets.karate import KarateClub
    from gfl_lightning.graphs.datasets.planetoid import Planetoid
    from gfl_lightning.graphs.datasets.sc import SC
    from gfl_lightning.graphs.datasets.snc import SNC
    from gfl_lightning.graphs.datasets.subcora import SubCora
    from gfl_lightning.graphs.records.shared_labels import SharedLabels
    from gfl_lightning.graphs.tables.client_tables import ClientTables
    from gfl_lightning.lit.central import Central
    from gfl_lightning.lit.gfl import GFL
    from gfl_lightning.lit.local_mlps import LocalMLPs
    from gfl_lightning.lit.rounds import FederatedTrainer
    from gfl_lightning.models.aggregators.appnp import APPNP
    from gfl_lightning.models.aggregators.chosen_appnp import ChosenAPPNP
    from gfl_lightning.models.aggregators.identity import Identity
    from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
    from gfl_lightning.models.aggregators.sgc import SGC
    from gfl_lightning.models.encoders.linear import Linear
    from gfl_lightning.models.encoders.mlp import MLP
    from gfl_lightning.privacy.guarantee import Guarantee
    from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
    from gfl_lightning.privacy.mechanisms.steps import StepNoise
    from gfl_lightning.privacy.protection import Protection
    from gfl_lightning.privacy.randomise.gaussian_direction import GaussianDirection
    from gfl_lightning.privacy.randomise.multi_bit import MultiBit
    from gfl_lightning.privacy.randomise.once import RandomisedOnce
    from gfl_lightning.privacy.randomise.piecewise import Piecewise
    from gfl_lightning.privacy.randomise.priv_unit import PrivUnit
    from gfl_lightning.privacy.randomise.randomised_response import RandomisedResponse
    from gfl_lightning.privacy.randomise.subset import Subset

__all__ = [
    "APPNP",
    "DNC",
    "GFL",
    "MLP",
    "SC",
    "SGC",
    "SNC",
    "Average",
    "Central",
    "ChosenAPPNP",
    "Citations",
    "ClientGraph",
    "ClientGraphFile",
    "ClientTables",
    "FedAdam",
    "FederatedTrainer",
    "Federation",
    "Gaussian",
    "GaussianDirection",
    "Guarantee",
    "Identity",
    "KarateClub",
    "LearnablePolynomial",
    "Linear",
    "LocalMLPs",
    "LocalTraining",
    "Momentum",
    "MultiBit",
    "Participation",
    "Piecewise",
    "Planetoid",
    "PrivUnit",
    "Protection",
    "RandomisedOnce",
    "RandomisedResponse",
    "SharedLabels",
    "StepNoise",
    "SubCora",
    "Subset",
]

_HOMES = {
    "APPNP": "models.aggregators.appnp",
    "Average": "federated.server.average",
    "Central": "lit.central",
    "ChosenAPPNP": "models.aggregators.chosen_appnp",
    "Citations": "graphs.datasets.citations",
    "ClientGraph": "graphs.client_graph",
    "ClientGraphFile": "graphs.datasets.client_graph_file",
    "ClientTables": "graphs.tables.client_tables",
    "DNC": "graphs.datasets.dnc",
    "FedAdam": "federated.server.fed_adam",
    "FederatedTrainer": "lit.rounds",
    "Federation": "federated.federation",
    "GFL": "lit.gfl",
    "Gaussian": "privacy.mechanisms.gaussian_noise",
    "GaussianDirection": "privacy.randomise.gaussian_direction",
    "Guarantee": "privacy.guarantee",
    "Identity": "models.aggregators.identity",
    "KarateClub": "graphs.datasets.karate",
    "LearnablePolynomial": "models.aggregators.learnable",
    "Linear": "models.encoders.linear",
    "LocalMLPs": "lit.local_mlps",
    "LocalTraining": "federated.local.options",
    "MLP": "models.encoders.mlp",
    "Momentum": "federated.server.momentum",
    "MultiBit": "privacy.randomise.multi_bit",
    "Participation": "federated.participation",
    "Piecewise": "privacy.randomise.piecewise",
    "Planetoid": "graphs.datasets.planetoid",
    "PrivUnit": "privacy.randomise.priv_unit",
    "Protection": "privacy.protection",
    "RandomisedOnce": "privacy.randomise.once",
    "RandomisedResponse": "privacy.randomise.randomised_response",
    "SC": "graphs.datasets.sc",
    "SGC": "models.aggregators.sgc",
    "SNC": "graphs.datasets.snc",
    "SharedLabels": "graphs.records.shared_labels",
    "StepNoise": "privacy.mechanisms.steps",
    "SubCora": "graphs.datasets.subcora",
    "Subset": "privacy.randomise.subset",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
