"""Data modules: each names one data set and its parameters, and produces its client graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

from pytorch_lightning import LightningDataModule

from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets import karate, planetoid, subcora, synthetic
from gfl_lightning.graphs.names import Names


class ClientGraphData(LightningDataModule):
    """A client graph, made once when first asked for.

    Rounds take their samples from :attr:`graph`; the loaders only tell Lightning that there is one batch, everything.

    Args:
        make: makes or reads the graph.
    """

    def __init__(self, make: Callable[[], ClientGraph]) -> None:
        super().__init__()
        self._make = make

    @cached_property
    def graph(self) -> ClientGraph:
        """The client graph."""
        return self._make()

    @property
    def names(self) -> Names:
        """What the user calls its clients, samples and classes: their numbers, unless the data have names."""
        return Names.of(self.graph)

    @property
    def num_features(self) -> int:
        """d."""
        return self.graph.num_features

    @property
    def num_clients(self) -> int:
        """N."""
        return self.graph.num_clients

    @property
    def num_classes(self) -> int:
        """c."""
        return self.graph.num_classes

    def setup(self, stage: str) -> None:
        """Lightning's hook: have the graph ready."""
        self.graph  # noqa: B018  # made on first access

    def train_dataloader(self) -> list[int]:
        """One batch, everything."""
        return [0]

    def val_dataloader(self) -> list[int]:
        """One batch, everything."""
        return [0]

    def test_dataloader(self) -> list[int]:
        """One batch, everything."""
        return [0]

    def predict_dataloader(self) -> list[int]:
        """One batch, everything."""
        return [0]


class DNC(ClientGraphData):
    """Deterministic node classification on the contextual stochastic block model.

    Args:
        num_clients: N.
        num_features: p.
        degree: d, the expected degree.
        lam: λ, how much the graph tells of the classes.
        mu: μ, how much the features tell.
        graph_seed: of the graph, the classes and the split.
        repetition: of the features.
    """

    def __init__(
        self,
        num_clients: int = 200,
        num_features: int = 100,
        degree: float = 8,
        lam: float = 2,
        mu: float = 1,
        graph_seed: int = 0,
        repetition: int = 0,
    ) -> None:
        super().__init__(partial(synthetic.dnc, num_clients, num_features, degree, lam, mu, graph_seed, repetition))


class SNC(ClientGraphData):
    """Stochastic node classification: many samples and one label per client.

    Args:
        num_clients: N.
        num_features: p.
        degree: d, the expected degree.
        lam: λ, how much the graph tells of the classes.
        mu: μ, how much the features tell.
        samples_per_client: samples of each client.
        graph_seed: of the graph, the classes, the split and the direction of the features.
        repetition: of the features.
    """

    def __init__(
        self,
        num_clients: int = 200,
        num_features: int = 100,
        degree: float = 10,
        lam: float = 2,
        mu: float = 1,
        samples_per_client: int = 40,
        graph_seed: int = 0,
        repetition: int = 0,
    ) -> None:
        super().__init__(
            partial(
                synthetic.snc, num_clients, num_features, degree, lam, mu, samples_per_client, graph_seed, repetition
            )
        )


class SC(ClientGraphData):
    """Supervised classification: every client trains on labelled samples of its own.

    Args:
        num_clients: N.
        num_features: p.
        degree: d, the expected degree.
        lam: λ, how much the graph tells of the clients' tags.
        mu: μ, how much the features tell of the labels.
        train_samples: training samples of each client, the ones that it shares.
        val_samples: validation samples of each client.
        test_samples: test samples of each client.
        graph_seed: of the graph, the tags and the direction of the features.
        repetition: of the labels and features.
    """

    def __init__(
        self,
        num_clients: int = 50,
        num_features: int = 100,
        degree: float = 5,
        lam: float = 2.2,
        mu: float = 0.1,
        train_samples: int = 10,
        val_samples: int = 10,
        test_samples: int = 100,
        graph_seed: int = 0,
        repetition: int = 0,
    ) -> None:
        super().__init__(
            partial(
                synthetic.sc,
                num_clients,
                num_features,
                degree,
                lam,
                mu,
                train_samples,
                val_samples,
                test_samples,
                graph_seed,
                repetition,
            )
        )


class SubCora(ClientGraphData):
    """A connected piece of Cora with 300 clients, by the paper's recipe.

    Args:
        repetition: number of the piece.
        seed: of the search for pieces.
        root: folder of the Planetoid files; none means $GFL_PLANETOID_ROOT, else data/planetoid.
        cache: folder of the found pieces; none means root/SubCora.
    """

    def __init__(self, repetition: int = 0, seed: int = 0, root: str | None = None, cache: str | None = None) -> None:
        super().__init__(partial(subcora.subcora, repetition, seed, None, root, cache))


class Planetoid(ClientGraphData):
    """A whole citation network, every paper a client, public split.

    Args:
        name: Cora, CiteSeer or PubMed.
        root: folder of the Planetoid files; none means $GFL_PLANETOID_ROOT, else data/planetoid.
    """

    def __init__(self, name: str = "Cora", root: str | None = None) -> None:
        super().__init__(partial(planetoid.planetoid, name, root))


class KarateClub(ClientGraphData):
    """Zachary's karate club, every member a client.

    Args:
        seed: of the split into validation and test clients.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(partial(karate.karate, seed))
