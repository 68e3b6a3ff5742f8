"""New rows scored alone: what weights predict from the representations that the clients of a network shared last.

A client needs its own rows, W̄ and Σ_{j≠k} Ã_kj ĥ_j; nobody else's rows. So a prediction does not depend on which
other rows stand in the table.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.engine.engine import Predictor, require_weights
from gfl_lightning.federated.personal.terms import PersonalFit, Terms
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.placement import Placement
from gfl_lightning.graphs.propagation import Propagation, compressed_rows, normalized_edges
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.model import Model
from gfl_lightning.models.personal.personal import Personal

CHUNK_ENTRIES = 2**24


class Scoring(Predictor):
    """Ã_kk h_{k,s} + Σ_{j≠k} Ã_kj ĥ_j for every sample, with the ĥ_j that a network has kept, ``[S, c]``.

    For a client of the network Ã is the network's. For a new client it is that of the network with this one client
    added by its links: new clients do not change what others are told, nor each other's scores.

    Args:
        graph: the clients and their samples.
        model: Ψ_h and Ψ_G.
        placement: where the clients stand in the network.
        shared: ĥ of the network's clients ``[K, c]``, protected as they were uploaded.
        personal: which terms clients have of their own.
        terms: those of the network's clients; a new client has none.
    """

    def __init__(
        self,
        graph: ClientGraph,
        model: Model,
        placement: Placement,
        shared: Tensor,
        personal: Personal,
        terms: Terms,
    ) -> None:
        wanted = (placement.size, graph.num_classes)
        require(tuple(shared.shape) == wanted, "shared", f"have the shape {wanted}", tuple(shared.shape))
        self.graph, self.model, self.placement = graph, model, placement
        self.shared = shared.to(graph.x)
        self.personal = PersonalFit(personal, graph)
        self._terms = self.personal.none if personal.is_inert else terms.placed(placement.known, self.personal.none)

    def logits_of(self, weights: Weights, round_number: int | None = None) -> Tensor:
        """Logits at any weights; nobody shares anything for it."""
        require_weights(weights, self.model.shapes)
        own, others = self.neighbourhood(self.model.gamma(weights))
        client = self.graph.client
        h = self.model.encoder(weights, self.graph.x)
        z = own[client, None] * h + others[client]
        return z if self.personal.is_inert else self.personal.applied(self._terms, z, h)

    def slope(self, weights: Weights) -> Tensor:
        """a_k = ∂z/∂h of every client ``[N]``."""
        own, _ = self.neighbourhood(self.model.gamma(weights))
        return self._terms.gate * own + 1 - self._terms.gate

    def neighbourhood(self, gamma: Tensor) -> tuple[Tensor, Tensor]:
        """Ã_kk ``[N]`` and C_k = Σ_{j≠k} Ã_kj ĥ_j ``[N, c]`` of the clients at hand."""
        place = self.placement
        known = place.known.to(self.graph.x.device)
        here = (known >= 0).nonzero().flatten()
        own = self.shared.new_empty(len(known))
        others = self.shared.new_empty(len(known), self.shared.shape[1])
        if len(here):
            A = Propagation(self._P, gamma.detach())
            number = known[here]
            own[here] = A.diagonal(number)
            others[here] = A.apply(self.shared)[number] - own[here, None] * self.shared[number]
        size = max(1, CHUNK_ENTRIES // (place.size * (self.shared.shape[1] + 1)))
        for chunk in place.new.to(known.device).split(size):
            own[chunk], others[chunk] = self._joined(chunk, gamma)
        return own, others

    def _joined(self, clients: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        """The same of B new clients, each as if it were the only one to join.

        With the joiner's links w, P′ = S (A + I + w e_nᵀ + e_n wᵀ) S where S = D̂′^{-1/2} differs from the network's at
        its neighbours alone; Horner's scheme runs on ``[K, B, c + 1]``, the last column being e_n for Ã_nn.
        """
        H, B = self.shared, len(clients)
        W = self._links_of(clients)
        scale, scale_n = (self._degree[:, None] + W).rsqrt(), (1 + W.sum(0)).rsqrt()
        start = H.new_zeros(len(H), B, H.shape[1] + 1)
        start[:, :, :-1] = H[:, None]
        start_n = H.new_zeros(B, H.shape[1] + 1)
        start_n[:, -1] = 1
        *lower, top = gamma.detach().tolist()
        Z, Z_n = top * start, top * start_n
        for coefficient in reversed(lower):
            U, U_n = scale[..., None] * Z, scale_n[:, None] * Z_n
            spread = (self._network @ U.flatten(1)).view_as(U) + W[..., None] * U_n
            Z_n = scale_n[:, None] * (U_n + (W[..., None] * U).sum(0)) + coefficient * start_n
            Z = scale[..., None] * spread + coefficient * start
        return Z_n[:, -1], Z_n[:, :-1]

    @cached_property
    def _P(self) -> Tensor:
        place = self.placement
        return normalized_edges(*self._edges, place.size, self.shared.dtype)

    @property
    def _edges(self) -> tuple[Tensor, Tensor | None]:
        place, device = self.placement, self.shared.device
        return place.edge_index.to(device), None if place.edge_weight is None else place.edge_weight.to(device)

    @cached_property
    def _network(self) -> Tensor:
        """A + I of the network, in compressed rows."""
        K = self.placement.size
        index, weight = self._edges
        weight = self.shared.new_ones(index.shape[1]) if weight is None else weight.to(self.shared)
        every = torch.arange(K, device=index.device).expand(2, K)
        values = torch.cat([weight, self.shared.new_ones(K)])
        ends = torch.cat([index, every], 1)
        return compressed_rows(torch.sparse_coo_tensor(ends, values, (K, K), check_invariants=True).coalesce())

    @cached_property
    def _degree(self) -> Tensor:
        """D̂ of the network ``[K]``."""
        return self._network @ self.shared.new_ones(self.placement.size)

    def _links_of(self, clients: Tensor) -> Tensor:
        """Weights of some new clients' links ``[K, B]``."""
        place, W = self.placement, self.shared.new_zeros(self.placement.size, len(clients))
        column = torch.full_like(place.known, -1).to(W.device)
        column[clients] = torch.arange(len(clients), device=W.device)
        here, there = place.links.to(W.device)
        chosen = column[here] >= 0
        W[there[chosen], column[here[chosen]]] = place.link_weight.to(W)[chosen]
        return W
