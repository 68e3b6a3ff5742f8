"""Server and clients as separate objects that exchange nothing but messages: the protocols, one client at a time.

The engine computes the same round for all clients at once; this is the evidence that the messages suffice, for fixed
aggregators and plain SGD. A client keeps its samples, the server its graph, and neither sees the other's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.func import jacrev, vjp
from torch.nn import functional as F

from gfl_lightning.federated.protection.protected_messages import protected
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.protocol.messages import (
    FactorAggregate,
    FactorModelUpload,
    FactorUpload,
    JacobianAggregate,
    JacobianUpload,
    Message,
    ModelBroadcast,
    ModelUpload,
    RepresentationAggregate,
    RepresentationUpload,
)
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.models.encoders.two_layer_relu import TwoLayerReLU
from gfl_lightning.privacy.protection import Protection


@dataclass(eq=False)
class ClientParty:
    """A client: its own samples, its own entry Ã_kk, and the protocol.

    Args:
        number: k.
        encoder: Ψ_h.
        protocol: ``jacobian`` or ``gram``.
        shared_x: the samples that enter ĥ_k ``[n, d]``.
        train_x: the samples it trains on ``[n', d]``, none if it only shares.
        train_y: their labels ``[n']``.
        own: Ã_kk, which the server tells each client once.
        compensated: whether it sends its Jacobian; V1 does not.
        protection: bounds and noise on its uploads.
        noise: where the noise comes from.
    """

    number: int
    encoder: SizedEncoder
    protocol: ProtocolName
    shared_x: Tensor
    train_x: Tensor
    train_y: Tensor
    own: float
    compensated: bool = True
    protection: Protection = field(default_factory=Protection)
    noise: torch.Generator = field(default_factory=torch.Generator)
    _enrolled: bool = field(default=False, init=False)

    @property
    def _structure(self) -> TwoLayerReLU:
        """What the Gram protocol needs of the encoder."""
        assert self.encoder.structure is not None
        return self.encoder.structure

    @property
    def _one_sample(self) -> bool:
        return len(self.shared_x) == 1 and (not len(self.train_x) or torch.equal(self.train_x, self.shared_x))

    def share(self, broadcast: ModelBroadcast) -> list[Message]:
        """Step 3: ĥ_k and ∇ĥ_k at W̄, protected."""
        return [protected(m, self.protection, broadcast.weights, self.noise) for m in self._shared(broadcast.weights)]

    def _shared(self, W: Weights) -> list[Message]:
        h = self.encoder(W, self.shared_x).mean(0)
        representation = RepresentationUpload(self.number, h)
        if not self.compensated:
            return [representation]
        if self.protocol == "jacobian":
            jacobian = jacrev(lambda w: self.encoder(w, self.shared_x).mean(0))(W)
            return [representation, JacobianUpload(self.number, jacobian)]
        W1, _ = self._structure.split(W)
        z = self.shared_x @ W1.T
        pattern, activation = z > 0, torch.relu(z).mean(0)
        if not self._one_sample:
            U = pattern.to(z.dtype).T @ self.shared_x / len(z)
            return [representation, FactorUpload(self.number, activation, U=U)]
        direction = None if self._enrolled else self.shared_x[0]
        self._enrolled = True
        return [representation, FactorUpload(self.number, activation, pattern[0], direction)]

    def train(self, broadcast: ModelBroadcast, received: list[Message], lr: float, batches: list[Tensor]) -> Message:
        """Step 1: local SGD steps with C_k and ∇C_k held fixed; ``batches`` are indices of own training samples."""
        trained = self._trained(broadcast, received, lr, batches)
        return protected(trained, self.protection, broadcast.weights, self.noise)

    def _trained(self, broadcast: ModelBroadcast, received: list[Message], lr: float, batches: list[Tensor]) -> Message:
        by_type = {type(message): message for message in received}
        representation = by_type[RepresentationAggregate]
        assert isinstance(representation, RepresentationAggregate)
        factors = by_type.get(FactorAggregate)
        if isinstance(factors, FactorAggregate) and factors.cross is not None:
            return self._train_on_preactivations(broadcast.weights, representation.C, factors, lr, len(batches))
        W = broadcast.weights
        grad_C = self._grad_C(by_type, W)
        Wk = dict(W)
        for batch in batches:
            h, pull = vjp(lambda w, x=self.train_x[batch]: self.encoder(w, x), Wk)  # type: ignore[misc]
            r = self._residual(h, representation.C, batch)
            (own,) = pull(self.own * r)
            Wk = {name: w - lr * (own[name] + torch.tensordot(r.sum(0), grad_C[name], 1)) for name, w in Wk.items()}
        return ModelUpload(self.number, Wk)

    def _residual(self, h: Tensor, C: Tensor, batch: Tensor | slice) -> Tensor:
        y = F.one_hot(self.train_y[batch], h.shape[1]).to(h.dtype)
        return (torch.softmax(self.own * h + C, -1) - y) / len(h)

    def _grad_C(self, received: dict[type[Message], Message], W: Weights) -> Weights:
        """∇C_k by weight ``[c, …]``, as received or from its factors; zero where none came (V1)."""
        jacobian, factors = received.get(JacobianAggregate), received.get(FactorAggregate)
        c = self.encoder.num_classes
        if isinstance(jacobian, JacobianAggregate):
            return jacobian.grad_C
        if not isinstance(factors, FactorAggregate):
            return {name: w.new_zeros(c, *w.shape) for name, w in W.items()}
        assert factors.T is not None
        _, W2 = self._structure.split(W)
        T = factors.T if factors.T.ndim == 3 else W2[:, :, None] * factors.T
        return self._structure.join(T, torch.eye(c, dtype=T.dtype)[:, :, None] * factors.A)

    def _train_on_preactivations(
        self, W: Weights, C: Tensor, factors: FactorAggregate, lr: float, steps: int
    ) -> FactorModelUpload:
        """The same steps for one sample, seen only through z = W1 x; see the dual path of the engine."""
        assert factors.cross is not None
        W1, W2 = self._structure.split(W)
        cross = factors.cross if factors.cross.ndim == 2 else W2 * factors.cross
        x = self.train_x[0]
        z = W1 @ x
        sum_delta, sum_r = torch.zeros_like(z), torch.zeros_like(C)
        for _ in range(steps):
            a = torch.relu(z)
            r = self._residual((W2 @ a)[None], C, slice(None))[0]
            delta = self.own * torch.where(z > 0, W2.T @ r, 0)
            W2 = W2 - lr * torch.outer(r, self.own * a + factors.A)
            z = z - lr * (x @ x * delta + r @ cross)
            sum_delta, sum_r = sum_delta + delta, sum_r + r
        return FactorModelUpload(self.number, W2, sum_delta, sum_r)


@dataclass(eq=False)
class ServerParty:
    """The server: Ã, W̄ and the uploads that stand.

    Args:
        A: Ã ``[N, N]``.
        encoder: Ψ_h.
        weights: W̄.
    """

    A: Tensor
    encoder: SizedEncoder
    weights: Weights
    _h: dict[int, Tensor] = field(default_factory=dict, init=False)
    _jacobian: dict[int, Weights] = field(default_factory=dict, init=False)
    _factors: dict[int, FactorUpload] = field(default_factory=dict, init=False)
    _uploaded_at: dict[int, Weights] = field(default_factory=dict, init=False)
    _direction: dict[int, Tensor] = field(default_factory=dict, init=False)

    def broadcast(self) -> ModelBroadcast:
        """W̄, before steps 1 and 3."""
        return ModelBroadcast(self.weights)

    def receive(self, message: Message) -> None:
        """Keep an upload; it stands until the client sends another."""
        if isinstance(message, RepresentationUpload):
            self._h[message.client] = message.h
        elif isinstance(message, JacobianUpload):
            self._jacobian[message.client] = message.jacobian
        elif isinstance(message, FactorUpload):
            self._factors[message.client] = message
            self._uploaded_at[message.client] = self.weights
            if message.direction is not None:
                self._direction[message.client] = message.direction
        else:
            raise TypeError(f"message must be an upload of a representation or Jacobian, got {type(message).__name__}.")

    def aggregate(self, k: int) -> list[Message]:
        """Step 3: what client k gets of the others."""
        messages: list[Message] = [RepresentationAggregate(k, self._mix(k, self._h))]
        if self._jacobian:
            names = next(iter(self._jacobian.values()))
            grad_C = {name: self._mix(k, {j: J[name] for j, J in self._jacobian.items()}) for name in names}
            messages.append(JacobianAggregate(k, grad_C))
        if self._factors:
            A = self._mix(k, {j: factors.activation for j, factors in self._factors.items()})
            fresh = all(weights is self.weights for weights in self._uploaded_at.values())
            x = self._direction.get(k)
            T = {j: self._U(j) if x is None else self._U_times(j, x) for j in self._factors}
            if not fresh:
                T = {j: self._second(j).view(*self._second(j).shape, *[1] * (t.ndim - 1)) * t for j, t in T.items()}
            mixed = self._mix(k, T)
            messages.append(FactorAggregate(k, A, T=mixed) if x is None else FactorAggregate(k, A, cross=mixed))
        return messages

    def average(self, uploads: list[Message], lr: float) -> None:
        """Step 2: W̄ becomes the uniform average of the clients' models."""
        models = [u.weights if isinstance(u, ModelUpload) else self._model(u, lr) for u in uploads]
        self.weights = {name: torch.stack([model[name] for model in models]).mean(0) for name in self.weights}

    def _mix(self, k: int, values: dict[int, Tensor]) -> Tensor:
        """Σ_{j≠k} Ã_kj v_j over the clients that ever uploaded."""
        zero = torch.zeros_like(next(iter(values.values())))
        return sum((self.A[k, j] * value for j, value in values.items() if j != k), zero)

    def _second(self, j: int) -> Tensor:
        """W̄2 at which client j's factors were computed."""
        assert self.encoder.structure is not None
        return self.encoder.structure.split(self._uploaded_at[j])[1]

    def _U(self, j: int) -> Tensor:
        factors = self._factors[j]
        if factors.U is not None:
            return factors.U
        assert factors.pattern is not None
        return torch.outer(factors.pattern.to(factors.activation.dtype), self._direction[j])

    def _U_times(self, j: int, x: Tensor) -> Tensor:
        factors = self._factors[j]
        if factors.U is not None:
            return factors.U @ x
        assert factors.pattern is not None
        return factors.pattern.to(x.dtype) * (self._direction[j] @ x)

    def _model(self, upload: Message, lr: float) -> Weights:
        """W_k from the factors of its update: W1,k = W̄1 − η (δ x_kᵀ + Σ_{j≠k} Ã_kj diag(W̄2ᵀ r) U_j)."""
        assert isinstance(upload, FactorModelUpload)
        k = upload.client
        structure = self.encoder.structure
        assert structure is not None
        others = {j: (self._second(j).T @ upload.residual)[:, None] * self._U(j) for j in self._factors}
        moved = torch.outer(upload.delta, self._direction[k]) + self._mix(k, others)
        return structure.join(self.weights[structure.first] - lr * moved, upload.W2)
