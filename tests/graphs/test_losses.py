"""Losses: residuals are slopes, scales are those of the labels, and labels that do not fit are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from graph_builders import random_clients, with_numbers
from torch import Tensor
from torch.func import hessian, jacrev, vmap

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.huber import Huber
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.parts import build, describe

NUMBERS: tuple[Loss, ...] = (SquaredError(3.0, 2.0), Huber(3.0, 2.0, delta=0.4), Poisson(scale=2.0))


def drawn(n: int, c: int, seed: int = 0) -> Tensor:
    return torch.randn(n, c, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("loss", [CrossEntropy(), *NUMBERS], ids=lambda loss: type(loss).__name__)
def test_residual_and_curvature_are_derivatives_of_the_loss(loss: Loss) -> None:
    c = 1 if loss.of_numbers else 3
    z = drawn(20, c)
    y = drawn(20, 1, 1)[:, 0].exp() if loss.of_numbers else torch.arange(20) % 3
    one = vmap(lambda z, y: loss.losses(z[None], y[None])[0]) if loss.of_numbers else None
    slope = vmap(jacrev(lambda z, y: loss.losses(z[None], y[None])[0]))(z, y)
    torch.testing.assert_close(loss.residual(z, loss.targets(y, c, z.dtype)), slope)
    assert one is None or bool((one(z, y) >= 0).all())
    bent = vmap(hessian(lambda z, y: loss.losses(z[None], y[None])[0]))(z, y)
    torch.testing.assert_close(loss.curvature(z, loss.targets(y, c, z.dtype)), bent)


def test_losses_are_the_textbooks() -> None:
    z, y = torch.tensor([[0.3], [-1.0]], dtype=torch.float64), torch.tensor([4.0, 0.0], dtype=torch.float64)
    squared = SquaredError(1.0, 2.0)
    torch.testing.assert_close(squared.losses(z, y), 0.5 * ((squared.link(z)[:, 0] - y) / 2) ** 2)
    torch.testing.assert_close(Huber(1.0, 2.0, 1e6).losses(z, y), squared.losses(z, y))
    far = Huber(delta=1e-6).losses(z, y)
    torch.testing.assert_close(far / 1e-6, (z[:, 0] - y).abs(), rtol=0, atol=1e-6)
    counts = Poisson(scale=2.0)
    rate = counts.link(z)[:, 0]
    log_likelihood = torch.distributions.Poisson(rate).log_prob(y)
    best = torch.distributions.Poisson(y.clamp_min(1e-300)).log_prob(y)
    torch.testing.assert_close(counts.losses(z, y), (best - log_likelihood) / 2.0)


def test_a_fitted_loss_starts_at_the_mean_of_the_labels() -> None:
    y = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    nothing = torch.zeros(1, 1, dtype=torch.float64)
    for loss in NUMBERS:
        fitted = loss.fitted(y)
        assert float(fitted.link(nothing)) == pytest.approx(3.0)
        assert build(describe(fitted), Loss) == fitted
    targets = SquaredError().fitted(y).targets(y, 1, torch.float64)
    assert float(targets.mean()) == pytest.approx(0)
    assert float(targets.square().mean()) == pytest.approx(1)
    assert SquaredError().fitted(torch.full((3,), 7.0)) == SquaredError(7.0, 1.0)
    assert CrossEntropy().fitted(y) == CrossEntropy()


def test_a_graph_of_numbers_knows_what_it_holds() -> None:
    graph = with_numbers(random_clients("sc"), SquaredError())
    assert "labels that are numbers" in repr(graph)
    assert len(graph.untrained_classes) == 0
    hidden = graph.without_test()
    assert bool(hidden.y[hidden.mask(Split.NONE)].isnan().all())
    assert hidden.loss == graph.to(torch.float32).loss == graph.loss
    back = ClientGraph.from_data(graph.to_data(), graph.loss)
    assert torch.equal(back.y, graph.y)
    assert back.loss == graph.loss


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num_classes": 2}, "num_classes must be 1 for Poisson, whose labels are numbers, got 2"),
        ({"y": torch.zeros(29, dtype=torch.int64)}, "y must be of type torch.float64, got torch.int64"),
        ({"y": torch.full((29,), torch.nan).double()}, r"y must be finite \(nan only where split is NONE\), got \[nan"),
        ({"y": torch.full((29,), -1.0).double()}, r"y must be at least 0 for Poisson, got \[-1.0"),
    ],
)
def test_labels_that_do_not_fit_are_refused(change: dict[str, object], sentence: str) -> None:
    graph = with_numbers(random_clients("sc"), Poisson())
    size = {"y": torch.ones(graph.num_samples).to(change["y"]) * change["y"][0]} if "y" in change else {}  # type: ignore[index, call-overload]
    with pytest.raises(InputError, match=sentence):
        replace(graph, **(change | size))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: SquaredError(scale=0.0), "scale must be positive and finite, got 0.0"),
        (lambda: SquaredError(centre=float("inf")), "centre must be finite, got inf"),
        (lambda: Huber(delta=-1.0), "delta must be positive and finite, got -1.0"),
        (lambda: Poisson(centre=1.0), "centre must be 0 for Poisson, as counts start there, got 1.0"),
    ],
)
def test_losses_refuse_what_they_cannot_be(make: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()  # type: ignore[operator]
