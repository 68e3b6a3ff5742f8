"""A client as an object of its own: it keeps its samples and exchanges nothing but messages.

The engine computes the same round for all clients at once; a deployment runs this one at each site.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from gfl_lightning.federated.local.gradient import PULL, bounded_gradient, client_gradient
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.protection.protected_messages import is_finite, null_record, protected, sample_means
from gfl_lightning.federated.protection.step_guard import PlainSteps, StepGuard
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
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.two_layer_relu import TwoLayerReLU
from gfl_lightning.models.model import Model
from gfl_lightning.privacy.noise_key import NoiseKey, digest
from gfl_lightning.privacy.protection import Protection


@dataclass(frozen=True, eq=False)
class OwnSamples:
    """What a client holds.

    Args:
        shared_x: the samples that enter ĥ_k ``[n, d]``.
        train_x: the samples it trains on ``[n', d]``, none if it only shares.
        train_y: their labels ``[n']``.
        train_weight: the weights of their losses ``[n']``.
        loss: what is lost on a label.
    """

    shared_x: Tensor
    train_x: Tensor
    train_y: Tensor
    train_weight: Tensor
    loss: Loss = CrossEntropy()  # noqa: RUF009  # frozen

    @property
    def one_direction(self) -> bool:
        """Whether its Jacobian is that of the one sample it shares and trains on."""
        return len(self.shared_x) == 1 and (not len(self.train_x) or torch.equal(self.train_x, self.shared_x))


@dataclass(eq=False)
class ClientParty:
    """Client k: its own samples, its own entry Ã_kk, and the protocol.

    Args:
        number: k.
        model: Ψ_h and Ψ_G.
        samples: its own.
        own: Ã_kk, or (P^l)_kk of each hop where Ψ_G is learnable ``[L]``; the server tells each client once.
        local: its optimizer.
        protocol: ``jacobian`` or ``gram``.
        compensated: whether it sends its Jacobian; V1 does not.
        protection: bounds and noise on its uploads.
        key: of the noise, its own: the same upload asked for again has the same noise, another one never.
        whole_factors: whether it sends ∇ĥ_k by its factors (a_k, U_k) under either protocol, U_k = s xᵀ too where it
            has one sample: they are linear in what is summed, as ∇ĥ_k is, and c times fewer (a_k = x̄_k alone where the
            encoder is linear).
    """

    number: int
    model: Model
    samples: OwnSamples
    own: Tensor
    local: LocalTraining = field(default_factory=LocalTraining)
    protocol: ProtocolName = "jacobian"
    compensated: bool = True
    protection: Protection = field(default_factory=Protection)
    key: NoiseKey = field(default_factory=NoiseKey.fresh)
    whole_factors: bool = False
    enrolled: bool = field(default=False, init=False)

    @property
    def _structure(self) -> TwoLayerReLU:
        """What the Gram protocol needs of the encoder."""
        assert self.model.encoder.structure is not None
        return self.model.encoder.structure

    def share(self, broadcast: ModelBroadcast, t: int = 0) -> list[Message]:
        """Step 3 of round t: ĥ_k and ∇ĥ_k at W̄, protected; nothing where no client sees another."""
        if self.model.aggregator.isolates:
            return []
        return [self._protected(message, broadcast.weights, t) for message in self._shared(broadcast.weights)]

    def _shared(self, W: Weights) -> list[Message]:
        x, encoder = self.samples.shared_x, self.model.encoder
        own = encoder.own(W)
        if self.protection.unit == "sample" and not self.protection.is_inert:
            h = encoder(own, x)
            jacobian = vmap(jacrev(encoder.__call__), in_dims=(None, 0))(own, x) if self.compensated else None
            return sample_means(self.number, h, jacobian, self.protection)
        representation = RepresentationUpload(self.number, encoder(own, x).mean(0))
        if not self.compensated:
            return [representation]
        if self.protocol == "gram" or self.whole_factors:
            return [representation, self._factors(W)]
        return [representation, JacobianUpload(self.number, jacrev(lambda w: encoder(w, x).mean(0))(own))]

    def _factors(self, W: Weights) -> FactorUpload:
        x = self.samples.shared_x
        if self.model.encoder.structure is None:
            return FactorUpload(self.number, x.mean(0))
        z = x @ self._structure.split(W)[0].T
        pattern, activation = z > 0, torch.relu(z).mean(0)
        if self.whole_factors or not self.samples.one_direction:
            return FactorUpload(self.number, activation, U=pattern.to(z.dtype).T @ x / len(z))
        direction = None if self.enrolled else x[0]
        self.enrolled = True
        return FactorUpload(self.number, activation, pattern[0], direction)

    def train(
        self, broadcast: ModelBroadcast, received: Sequence[Message], lr: float, batches: Sequence[Tensor], t: int = 0
    ) -> list[Message]:
        """Step 1 of round t: local steps with C_k and ∇C_k held fixed, protected.

        ``batches`` are indices of own training samples. An update that is not finite is not sent, or where models are
        protected counts as none: W̄ itself, under the same noise.
        """
        W, trained = broadcast.weights, self._trained(broadcast.weights, received, lr, batches, t)
        if not is_finite(trained):
            if not self.protection.touches_models:
                return []
            trained = null_record(trained, W)
        return [self._protected(trained, W, t)]

    def _protected(self, message: Message, W: Weights, t: int) -> Message:
        """The upload as it may leave."""
        if self.protection.is_inert:
            return message
        value = {field.name: getattr(message, field.name) for field in fields(message)}
        source = self.key.source(type(message).__name__, t, self.number, hides=digest(W, value, repr(self.protection)))
        return protected(message, self.protection, W, source, each_bounded=self.protection.unit == "sample")

    def _trained(
        self, W: Weights, received: Sequence[Message], lr: float, batches: Sequence[Tensor], t: int
    ) -> Message:
        by_type = {type(message): message for message in received}
        representation, factors = by_type.get(RepresentationAggregate), by_type.get(FactorAggregate)
        c = self.model.encoder.num_classes
        C = representation.C if isinstance(representation, RepresentationAggregate) else self.own.new_zeros(c)
        if isinstance(factors, FactorAggregate) and factors.cross is not None:
            return self._train_on_preactivations(W, C, factors.A, factors.cross, lr, len(batches))
        if isinstance(factors, FactorAggregate) and self._sees_preactivations_alone(factors):
            return self._train_with_factors(W, C, factors, lr, len(batches))
        grad_C = self._grad_C(by_type, W)
        guard = self._guard(t, W, C, grad_C, lr, *batches, *vars(self.samples).values(), repr(self.protection))
        Wk, velocity = dict(W), {name: torch.zeros_like(weight) for name, weight in W.items()}
        for step, batch in enumerate(batches):
            gradient = self._gradient(guard, Wk, batch, C.view(len(self.own), c), grad_C)
            noisy = guard.noisy(step, {name: part[None] for name, part in gradient.items()})
            gradient = {name: part[0].to(W[name]) for name, part in noisy.items()}
            for name, weight in Wk.items():
                g = gradient[name] + self.local.weight_decay * weight + self.local.proximal * (weight - W[name])
                velocity[name] = self.local.momentum * velocity[name] + g
                Wk[name] = weight - lr * velocity[name]
        return ModelUpload(self.number, Wk)

    def _gradient(self, guard: PlainSteps, W: Weights, batch: Tensor, C: Tensor, grad_C: Weights) -> Weights:
        own, encoder = self.samples, self.model.encoder
        x, loss_weight = own.train_x[batch], own.train_weight[batch]
        target = own.loss.targets(own.train_y[batch], encoder.num_classes, x.dtype)
        if guard.is_inert:
            made = client_gradient(encoder, own.loss, W, x, target, loss_weight / len(x), self.own, C, grad_C)
        else:
            weight = torch.full_like(loss_weight, 1 / self._expected_batch)
            made = bounded_gradient(guard, encoder, own.loss, W, x, target, weight, loss_weight, self.own, C, grad_C)
        made.pop(PULL)
        return made

    @property
    def _expected_batch(self) -> int:
        count = len(self.samples.train_x)
        return count if self.local.batch_size is None else min(count, self.local.batch_size)

    def _guard(self, t: int, *hides: Any) -> PlainSteps:
        """DP-SGD's bound and noise, or none; the steps depend on what they hide."""
        steps = self.protection.steps
        if steps.is_inert:
            return PlainSteps()
        batch = self.own.new_tensor([float(self._expected_batch)])
        draws = partial(self.key.source, "step", t, self.number, hides=digest(*hides))
        return StepGuard(steps.clip, steps.noise_multiplier, batch, None, draws)

    def _grad_C(self, received: dict[type[Message], Message], W: Weights) -> Weights:
        """∇C_k of each hop by weight ``[L, c, …]``, as received or from its factors; nothing where none came (V1)."""
        jacobian, factors = received.get(JacobianAggregate), received.get(FactorAggregate)
        c, hops = self.model.encoder.num_classes, len(self.own)
        if isinstance(jacobian, JacobianAggregate):
            return {name: part.reshape(hops, c, *W[name].shape) for name, part in jacobian.grad_C.items()}
        if not isinstance(factors, FactorAggregate):
            return {}
        if factors.T is None:
            each = torch.eye(c, dtype=factors.A.dtype)[:, :, None] * factors.A.view(hops, 1, 1, -1)
            return {str(self.model.encoder.encoder.linear_weight): each}
        W1, W2 = self._structure.split(W)
        of_several_W2 = factors.T.ndim == 3 and not self.model.aggregator.learnable
        T = factors.T[None] if of_several_W2 else W2[:, :, None] * factors.T.view(hops, 1, *W1.shape)
        A = torch.eye(c, dtype=T.dtype)[:, :, None] * factors.A.view(hops, 1, 1, -1)
        return self._structure.join(T, A)

    def _sees_preactivations_alone(self, factors: FactorAggregate) -> bool:
        """Whether its one sample and T_k, made with W̄2 alone, are all that its steps depend on."""
        plain = self.local.is_plain_sgd and self.protection.steps.is_inert and not self.model.aggregator.learnable
        fresh = factors.T is not None and factors.T.ndim == 2
        return plain and fresh and self.samples.one_direction

    def _train_with_factors(
        self, W: Weights, C: Tensor, factors: FactorAggregate, lr: float, steps: int
    ) -> ModelUpload:
        """The same steps on pre-activations, T_k x_k made here, and W_k whole: W1 − η (Σδ xᵀ + diag(W̄2ᵀ Σr) T_k)."""
        assert factors.T is not None
        x, (W1, W2) = self.samples.train_x[0], self._structure.split(W)
        made = self._train_on_preactivations(W, C, factors.A, factors.T @ x, lr, steps)
        moved = torch.outer(made.delta, x) + (made.residual @ W2)[:, None] * factors.T
        return ModelUpload(self.number, self._structure.join(W1 - lr * moved, made.W2))

    def _train_on_preactivations(
        self, W: Weights, C: Tensor, A: Tensor, cross: Tensor, lr: float, steps: int
    ) -> FactorModelUpload:
        """The same steps for one sample, seen only through z = W1 x; see the dual path of the engine."""
        W1, W2 = self._structure.split(W)
        cross = cross if cross.ndim == 2 else W2 * cross
        x, own, weight = self.samples.train_x[0], self.own[0], self.samples.train_weight[0]
        loss, y = self.samples.loss, self.samples.loss.targets(self.samples.train_y[0], len(C), x.dtype)
        z = W1 @ x
        sum_delta, sum_r, squared = torch.zeros_like(z), torch.zeros_like(C), x @ x
        for _ in range(steps):
            a = torch.relu(z)
            r = weight * loss.residual(own * (W2 @ a) + C, y)
            delta = own * torch.where(z > 0, W2.T @ r, 0)
            W2 = W2 - lr * torch.outer(r, own * a + A)
            z = z - lr * (squared * delta + r @ cross)
            sum_delta, sum_r = sum_delta + delta, sum_r + r
        return FactorModelUpload(self.number, W2, sum_delta, sum_r)
