"""What one client uploads at given weights, by its public program: bounded, and with noise or without.

The engine never forms a single client's Jacobian. Here it is formed, for the clients under attack alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from gfl_lightning.federated.protection.protected_messages import protected, sample_means
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.protocol.messages import (
    FactorUpload,
    JacobianUpload,
    Message,
    ModelUpload,
    RepresentationUpload,
)
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism
from gfl_lightning.privacy.noise_source import NoiseSource
from gfl_lightning.privacy.protection import Protection


@dataclass(frozen=True, eq=False)
class ClientProgram:
    """From a client's records and W̄ to its uploads.

    Args:
        encoder: Ψ_h.
        protocol: ``jacobian`` or ``gram``.
        compensated: whether Jacobians are shared; V1 does not.
        protection: bounds and noise.
    """

    encoder: SizedEncoder
    protocol: ProtocolName
    compensated: bool
    protection: Protection

    @property
    def silent(self) -> ClientProgram:
        """The same without noise, of which Gaussian noise alone can be left out."""
        hidden, jacobian = (_silent(part) for part in (self.protection.hidden, self.protection.jacobian))
        return replace(self, protection=replace(self.protection, hidden=hidden, jacobian=jacobian))

    @property
    def std(self) -> dict[type[Message], float]:
        """How large the noise on each kind of upload is: its standard deviation, where it has one."""
        return {kind: part.spread for kind, part in self._parts.items()}

    @property
    def bound(self) -> dict[type[Message], float]:
        """The bound on each kind of upload that has one."""
        return {kind: part.clip for kind, part in self._parts.items() if part.is_bounded}

    @property
    def _parts(self) -> dict[type[Message], Mechanism]:
        return {
            RepresentationUpload: self.protection.hidden,
            JacobianUpload: self.protection.jacobian,
            ModelUpload: self.protection.update,
        }

    def uploads(
        self, weights: Weights, x: Tensor, client: int, source: NoiseSource, first: bool = True
    ) -> tuple[Message, ...]:
        """ĥ and ∇ĥ of records ``x [n, d]``; ``first``: nothing was sent before.

        The factor x̄ of a linear encoder's Jacobian e_o x̄ᵀ says what the Jacobian does, and is shown as that.
        """
        W = self.encoder.own(weights)
        each = self.protection.unit == "sample" and not self.protection.is_inert
        if each:
            jacobian = vmap(jacrev(self.encoder.__call__), in_dims=(None, 0))(W, x) if self.compensated else None
            messages = sample_means(client, self.encoder(W, x), jacobian, self.protection)
        else:
            messages = [RepresentationUpload(client, self.encoder(W, x).mean(0))]
            if self.compensated and self.protocol == "gram" and self.encoder.structure is not None:
                messages.append(self._factors(W, x, client, first))
            elif self.compensated:
                messages.append(JacobianUpload(client, self._jacobian(W, x)))
        return tuple(protected(message, self.protection, weights, source, each) for message in messages)

    def drawn(
        self, weights: Weights, x: Tensor, client: int, source: NoiseSource, first: bool = True
    ) -> tuple[Message, ...]:
        """The same, its Gaussian noise drawn quickly: of the same law but for rounding to the lattice."""
        messages = self.silent.uploads(weights, x, client, source, first)
        return tuple(self._blurred(message, source) for message in messages)

    def _blurred(self, message: Message, source: NoiseSource) -> Message:
        if isinstance(message, RepresentationUpload):
            return replace(message, h=message.h + quick_noise(self.protection.hidden, message.h, source))
        if isinstance(message, JacobianUpload):
            noisy = {
                J: part + quick_noise(self.protection.jacobian, part, source) for J, part in message.jacobian.items()
            }
            return replace(message, jacobian=noisy)
        return message

    def _jacobian(self, W: Weights, x: Tensor) -> Weights:
        """∇ĥ by its factors, or by differentiating."""
        structure = self.encoder.structure
        if structure is None:
            jacobian: Weights = jacrev(lambda w: self.encoder(w, x).mean(0))(W)
            return jacobian
        W1, W2 = structure.split(W)
        z = x @ W1.T
        U = (z > 0).to(x.dtype).T @ x / len(x)
        a = torch.relu(z).mean(0)
        return structure.join(W2[:, :, None] * U, torch.eye(len(W2), dtype=x.dtype)[:, :, None] * a)

    def _factors(self, W: Weights, x: Tensor, client: int, first: bool) -> FactorUpload:
        structure = self.encoder.structure
        assert structure is not None
        z = x @ structure.split(W)[0].T
        pattern, a = z > 0, torch.relu(z).mean(0)
        if len(x) > 1:
            return FactorUpload(client, a, U=pattern.to(x.dtype).T @ x / len(x))
        return FactorUpload(client, a, pattern[0], x[0] if first else None)


def quick_noise(mechanism: Mechanism, part: Tensor, source: NoiseSource) -> Tensor:
    """Gaussian noise for a part of an upload, in the place of what `_silent` left out."""
    if not isinstance(mechanism, Gaussian) or not mechanism.is_noisy:
        return part.new_zeros(())
    generator = torch.Generator().manual_seed(int(source.words(1)))
    return mechanism.std * torch.randn(part.shape, generator=generator).to(part)


def _silent(mechanism: Mechanism) -> Mechanism:
    return replace(mechanism, std=0.0) if isinstance(mechanism, Gaussian) else mechanism
