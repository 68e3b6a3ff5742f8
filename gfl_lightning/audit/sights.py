"""Servers that see less: one of two, or one that forgets. Each is a restriction of the server's view."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from gfl_lightning.attacks.views import View
from gfl_lightning.federated.protocol.messages import (
    FactorUpload,
    JacobianAggregate,
    JacobianUpload,
    ModelUpload,
    RepresentationAggregate,
    RepresentationUpload,
)


class Sight(ABC):
    """Which part of the server's messages an attacker at the server's place has."""

    @abstractmethod
    def __call__(self, view: View) -> View:
        """The view that is left."""


@dataclass(frozen=True)
class Everything(Sight):
    """The server of the paper's protocol, which keeps what it gets; also both of two servers together."""

    def __call__(self, view: View) -> View:
        """All of it."""
        return view


@dataclass(frozen=True)
class FirstServer(Sight):
    """Of the paper's two servers, the one that sees ĥ_j, and through which the models go."""

    def __call__(self, view: View) -> View:
        """Representations and models."""
        return view.only(RepresentationUpload, RepresentationAggregate, ModelUpload)


@dataclass(frozen=True)
class SecondServer(Sight):
    """Of the paper's two servers, the one that sees ∇ĥ_j."""

    def __call__(self, view: View) -> View:
        """Jacobians."""
        return view.only(JacobianUpload, FactorUpload, JacobianAggregate)


@dataclass(frozen=True)
class Forgetful(Sight):
    """A server that drops uploads as soon as its aggregates are sent, broken into once: one round."""

    def __call__(self, view: View) -> View:
        """The first round."""
        return view.first(1)
