"""Synthetic citation networks: sparse graphs of documents with words, of the statistics of Cora, CiteSeer or PubMed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from gfl_lightning.checks import require, require_count, require_room
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.data_set import DataSet

TAIL = 2.5
"""Exponent of the weights θ, whose tail is that of degrees."""


@dataclass(frozen=True)
class Citations(DataSet):
    """Documents of C classes on a degree-corrected block model, each with 0/1 words; one client each.

    A document has a weight θ ≥ 1 with P(θ > t) = t^(−2.5), at most √N. Each of N·degree/2 edges joins a document drawn
    in proportion to θ with one of its class (with probability ``homophily``) or of the others, again in proportion to
    θ; repeated edges are one. Word w is in a document of class c with probability 1 − exp(−words_per_document · q_cw),
    where q_c mixes the words that all classes share, falling off like 1/rank, with those of the class: the same
    reweighed by gamma variables, with share ``topical``. The first ``labelled`` documents of each class train, others
    validate and test.

    >>> Citations(num_clients=300, num_words=50, num_val=50, num_test=100).graph  # doctest: +NORMALIZE_WHITESPACE
    ClientGraph(300 clients, 388 edges, 300 samples (1 per client), 50 features, 6 classes; train 120, val 50, test 100;
    120 clients train)

    Args:
        num_clients: N.
        num_classes: C.
        num_words: size of the vocabulary.
        degree: mean degree, before repeated edges are one.
        homophily: share of edges inside a class.
        words_per_document: mean number of words drawn.
        topical: how much the words tell of the class.
        labelled: training documents of each class.
        num_val: validation documents.
        num_test: test documents.
        repetition: of everything.
    """

    num_clients: int = 3327
    num_classes: int = 6
    num_words: int = 3703
    degree: float = 2.75
    homophily: float = 0.74
    words_per_document: float = 32
    topical: float = 0.4
    labelled: int = 20
    num_val: int = 500
    num_test: int = 1000
    repetition: int = 0

    def __post_init__(self) -> None:
        for name in ("num_classes", "num_words", "labelled"):
            require_count(name, getattr(self, name), least=2 if name == "num_classes" else 1)
        for name in ("num_val", "num_test", "repetition"):
            require_count(name, getattr(self, name), least=0)
        least = self.num_classes * self.labelled + self.num_val + self.num_test
        require_count("num_clients", self.num_clients, least=least)
        words = 4.0 * self.num_words * (self.num_clients + 2 * self.num_classes)
        require_room("num_words", self.num_words, words)
        for name in ("homophily", "topical"):
            require(0 <= getattr(self, name) <= 1, name, "lie in [0, 1]", getattr(self, name))
        for name in ("degree", "words_per_document"):
            require(0 < getattr(self, name) < np.inf, name, "be positive and finite", getattr(self, name))

    def make(self) -> ClientGraph:
        """Everything is drawn anew in each repetition."""
        source = np.random.default_rng([self.repetition, self.num_clients])
        y, split = self._documents(source)
        return ClientGraph.from_edges(
            x=torch.from_numpy(self._words(y, source)),
            y=torch.from_numpy(y),
            client=torch.arange(self.num_clients),
            split=torch.from_numpy(split),
            shared=torch.ones(self.num_clients, dtype=torch.bool),
            edge_index=torch.from_numpy(self._edges(y, source)),
            num_classes=self.num_classes,
        )

    def repeated(self, repetition: int) -> Citations:
        """Another network of the same statistics."""
        return replace(self, repetition=repetition)

    def _documents(self, source: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """Class and split of each, in random order; classes of the unlabelled are not equally large."""
        N, C, first = self.num_clients, self.num_classes, self.num_classes * self.labelled
        y = source.choice(C, N, p=source.dirichlet(np.full(C, 8.0)))
        y[:first] = np.repeat(np.arange(C), self.labelled)
        split = np.full(N, int(Split.NONE), dtype=np.int8)
        split[:first] = Split.TRAIN
        split[first : first + self.num_val] = Split.VAL
        split[first + self.num_val : first + self.num_val + self.num_test] = Split.TEST
        order = source.permutation(N)
        return y[order], split[order]

    def _edges(self, y: NDArray[np.int64], source: np.random.Generator) -> NDArray[np.int64]:
        """Both ends of every draw."""
        N, draws = self.num_clients, round(self.num_clients * self.degree / 2)
        theta = np.minimum((1 - source.random(N)) ** (-1 / TAIL), np.sqrt(N))
        i = source.choice(N, draws, p=theta / theta.sum())
        inside = source.random(draws) < self.homophily
        j = np.empty(draws, dtype=np.int64)
        for c in range(self.num_classes):
            for same in (True, False):
                where = (y[i] == c) & (inside == same)
                weight = np.where((y == c) == same, theta, 0.0)
                j[where] = source.choice(N, int(where.sum()), p=weight / weight.sum())
        return np.stack([i, j])

    def _words(self, y: NDArray[np.int64], source: np.random.Generator) -> NDArray[np.float32]:
        """Which words each document has."""
        common = 1 / np.arange(10, self.num_words + 10)
        own = common * source.gamma(0.3, size=(self.num_classes, self.num_words))
        q = (1 - self.topical) * common / common.sum() + self.topical * own / own.sum(1, keepdims=True)
        chance = -np.expm1(-self.words_per_document * q)
        return (source.random((self.num_clients, self.num_words), dtype=np.float32) < chance[y]).astype(np.float32)
