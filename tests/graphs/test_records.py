"""Labels as shared features, and a loss that knows how labels were randomised."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from oracle import dense_powers

from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.forward_corrected import ForwardCorrected
from gfl_lightning.graphs.records.shared_labels import SharedLabels
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.encoders.mlp import MLP

SOURCE = np.random.default_rng(0)


def test_a_client_shares_its_label_and_trains_without_it() -> None:
    graph = DNC(num_clients=40, num_features=6).graph
    seen = SharedLabels(scale=0.5).of(graph, SOURCE)
    train, S = graph.mask(Split.TRAIN), graph.num_samples
    K = int(train.sum())
    assert torch.equal(seen.x[:S], torch.cat([graph.x, torch.zeros(S, 2)], 1))
    assert torch.equal(seen.shared[:S], ~train)
    assert torch.equal(seen.split[:S], graph.split)
    assert seen.mask(Split.NONE)[S:].all()
    assert seen.shared[S:].all()
    label = (torch.nn.functional.one_hot(graph.y[train], 2) - 0.5) * 0.5 * 40 / K
    assert torch.equal(seen.x[S:], torch.cat([graph.x[train], label.float()], 1))
    assert torch.equal(seen.client[S:], graph.client[train])


def test_no_output_depends_on_the_clients_own_label() -> None:
    """Of a linear encoder that only reads labels, an output is Σ_{j≠k} Ã_kj y_j."""
    graph = DNC(num_clients=40, num_features=6).graph.to(torch.float64)
    seen = SharedLabels().of(graph, SOURCE)
    federation = Federation(seen, MLP(()), APPNP(0.2, 3), local=LocalTraining(steps=1))
    W = torch.cat([torch.zeros(2, 6), torch.eye(2)], 1).double()
    logits = federation.logits_of({"W1": W})[: graph.num_samples]
    A = torch.tensordot(APPNP(0.2, 3).gamma, dense_powers(graph, 3), 1)
    label = torch.zeros(40, 2).double()
    train = graph.mask(Split.TRAIN)
    label[train] = (torch.nn.functional.one_hot(graph.y[train], 2).double() - 0.5) * 40 / int(train.sum())
    torch.testing.assert_close(logits, A @ label - A.diagonal()[:, None] * label)


def test_clients_with_several_samples_share_the_mean_of_their_labels() -> None:
    graph = SC(num_clients=20, num_features=6, train_samples=4).graph
    seen = SharedLabels().of(graph, SOURCE)
    assert torch.equal(seen.counts(seen.shared), torch.full((20,), 4))
    for k in range(20):
        mine = seen.x[(seen.client == k) & seen.shared][:, -2:].mean(0)
        share = graph.y[(graph.client == k) & graph.mask(Split.TRAIN)].float().mean()
        torch.testing.assert_close(mine, torch.stack([1 - share, share]) - 0.5)


def test_a_scale_must_be_positive() -> None:
    with pytest.raises(InputError, match="scale must be positive and finite"):
        SharedLabels(0.0)


@pytest.mark.parametrize("flip", [0.0, 0.1, 0.8])
def test_the_residual_is_the_gradient_of_the_corrected_loss(flip: float) -> None:
    loss = ForwardCorrected(flip)
    z = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    y = torch.arange(50) % 4
    (gradient,) = torch.autograd.grad(loss.losses(z, y).sum(), z)
    torch.testing.assert_close(loss.residual(z.detach(), loss.targets(y, 4, torch.float64)), gradient)
    T = (1 - flip) * torch.eye(4) + flip / 4
    direct = -torch.log((torch.softmax(z, 1) @ T.double())[torch.arange(50), y])
    torch.testing.assert_close(loss.losses(z, y), direct)


def test_without_flips_it_is_cross_entropy() -> None:
    z, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
    plain, corrected = CrossEntropy(), ForwardCorrected(0.0)
    torch.testing.assert_close(corrected.losses(z, y), plain.losses(z, y))
    target = plain.targets(y, 3, torch.float32)
    torch.testing.assert_close(corrected.residual(z, target), plain.residual(z, target))
    assert torch.isfinite(corrected.residual(1e4 * z, target)).all()


def test_the_corrected_loss_is_least_at_the_truth_and_the_plain_one_is_not() -> None:
    """Over answers of a known law its minimiser is the true probability, and that of cross-entropy the flipped one."""
    truth, flip = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64), 0.4
    law = truth * (1 - flip) + flip / 3

    def minimiser(loss: CrossEntropy) -> torch.Tensor:
        z = torch.zeros(3, dtype=torch.float64)
        target = loss.targets(torch.arange(3), 3, torch.float64)
        for _ in range(4000):
            z = z - (law[:, None] * loss.residual(z.expand(3, 3), target)).sum(0)
        return torch.softmax(z, 0)

    torch.testing.assert_close(minimiser(ForwardCorrected(flip)), truth, atol=1e-4, rtol=0)
    torch.testing.assert_close(minimiser(CrossEntropy()), law, atol=1e-4, rtol=0)


def test_a_flip_is_a_probability_below_one() -> None:
    for flip in (-0.1, 1.0, math.nan):
        with pytest.raises(InputError, match="flip must lie in"):
            ForwardCorrected(flip)
