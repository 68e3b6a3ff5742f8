"""Audits of small federations: everything is read without a defence, little behind one, and it is all told."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gfl_lightning.audit.audit import Audit, audit, require_auditable
from gfl_lightning.audit.cast import Cast, Scale
from gfl_lightning.audit.figure import draw
from gfl_lightning.audit.findings import Finding
from gfl_lightning.audit.intervals import better, clopper_pearson, empirical_epsilon, interval, two_way_interval
from gfl_lightning.audit.page import in_words, names, page, screen
from gfl_lightning.audit.recording import Recording, record
from gfl_lightning.audit.sights import Everything
from gfl_lightning.audit.stage import ALL, PUBLIC
from gfl_lightning.audit.subject import Subject
from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.graphs.records.rotated import Rotated
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.randomise.once import RandomisedOnce
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit

SMALL = Scale(victims=10, fellows=5, shadows=4, noisy_rounds=4)
LOCAL = LocalTraining(lr=0.3, steps=2)


def one_each() -> ClientGraph:
    return DNC(num_clients=80, num_features=30, degree=6.0).graph


def several() -> ClientGraph:
    return SC(num_clients=20, num_features=20, train_samples=6, val_samples=2, test_samples=4).graph


def subject(graph: ClientGraph, rounds: int = 40, **options: object) -> Subject:
    def build(data: ClientGraph, seed: int) -> Federation:
        key = NoiseKey.of_seed(seed)
        return Federation(data, MLP((32,)), local=LOCAL, seed=seed, noise_key=key, **options)  # type: ignore[arg-type]

    return Subject(graph, build, rounds)


def by_name(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    return {finding.attack: finding for finding in findings}


def test_without_a_defence_records_labels_and_membership_are_read() -> None:
    found = by_name(audit(subject(one_each(), 12), SMALL).findings)
    for name in ("RankOne", "UpdateSample", "UpdateLabel", "WhichWorld"):
        assert found[name].success > 0.99, name
    for name in ("RankOne", "UpdateSample", "WhichWorld", "NeighbourWords"):
        assert found[name].beats_guessing, name
    assert found["RankOne"].verdict == "the server reads every record"
    assert found["WhichWorld"].empirical_epsilon > 1.5


def test_the_mean_of_several_samples_does_not_hide_them() -> None:
    found = by_name(audit(subject(several(), rounds=80), SMALL).findings)
    assert found["FlippedUnits"].success > 0.3
    assert found["FlippedUnits"].blind == 0.0
    assert found["ClassShares"].beats_guessing
    assert "RankOne" not in found


def test_randomised_records_at_a_small_epsilon_are_at_chance_and_at_a_large_one_are_not() -> None:
    read = {}
    for epsilon in (0.01, 200.0):
        records = RandomisedOnce(epsilon, features=PrivUnit(), label_share=0.5, share_labels=0.0)
        found = by_name(audit(replace(subject(one_each(), 6), records=records), replace(SMALL, shadows=0)).findings)
        read[epsilon] = found["RankOne"].success
        if epsilon < 1:
            assert found["WhichWorld"].empirical_epsilon < 0.7
            assert not found["UpdateLabel"].beats_guessing
    assert read[0.01] < 0.45
    assert read[200.0] > 0.7


def test_a_rotation_hides_records_from_a_server_that_knows_none() -> None:
    found = by_name(audit(replace(subject(one_each(), 10), records=Rotated()), SMALL).findings)
    assert found["RankOne"].success < 0.3
    ways = ("independent components", "known marginals", "known records")
    assert {f"Unturned by {way}" for way in ways} <= set(found)
    assert "NeighbourWords" not in found


def test_what_is_not_shared_is_not_attacked() -> None:
    found = by_name(audit(subject(one_each(), 5, estimator="v1"), replace(SMALL, shadows=0)).findings)
    assert "RankOne" not in found
    assert found["UpdateSample"].success > 0.99
    alone = by_name(audit(subject(one_each(), 5, aggregator=Identity()), replace(SMALL, shadows=0)).findings)
    assert set(alone) == {"UpdateSample", "UpdateLabel", "NeighbourhoodClass"}


def test_the_same_audit_gives_the_same_findings() -> None:
    a, b = (audit(subject(several(), 5), replace(SMALL, shadows=4)) for _ in range(2))
    assert a.findings == b.findings


def test_public_clients_are_not_attacked_and_a_tiny_federation_is_refused() -> None:
    cast = Cast.of(one_each(), seed=0)
    assert not set(cast.public.tolist()) & set(cast.order)
    assert len(cast.public) == 8
    graph = one_each()
    with pytest.raises(InputError, match="graph must have more than 5 clients for an audit"):
        Cast.of(_first(graph, 5), seed=0)


def _first(graph: ClientGraph, N: int) -> ClientGraph:
    edges = torch.tensor([[0, 1], [1, 2]])
    rows = torch.arange(N)
    columns = {"x": graph.x[rows], "y": rows % 2, "client": rows, "shared": rows >= 0, "num_classes": 2}
    return ClientGraph.from_edges(**columns, split=torch.full((N,), int(Split.TRAIN)), edge_index=edges)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"estimator": "exact"}, "estimator must be compensated or v1 for an audit"),
        ({"aggregator": LearnablePolynomial()}, "aggregator must be fixed for an audit"),
    ],
)
def test_what_the_attacks_were_not_made_for_is_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        require_auditable(subject(one_each(), 3, **options))


def test_labels_that_are_numbers_are_refused() -> None:
    graph = one_each()
    numbers = replace(graph, y=graph.y.double(), num_classes=1, loss=SquaredError())
    with pytest.raises(InputError, match="graph must have classes as labels for an audit"):
        require_auditable(subject(numbers, 3))


def test_intervals_cover_as_they_should() -> None:
    generator = np.random.default_rng(0)
    exact = [clopper_pearson(int(generator.binomial(30, 0.3)), 30) for _ in range(400)]
    assert np.mean([low <= 0.3 <= high for low, high in exact]) >= 0.95
    drawn = [interval(generator.beta(2, 3, size=40).tolist(), seed) for seed in range(300)]
    assert 0.88 <= np.mean([low <= 0.4 <= high for low, high in drawn]) <= 0.99
    assert better([0.6] * 20, [0.5] * 20)
    assert not better([0.5] * 20, [0.5] * 20)


def test_an_interval_of_scores_that_share_luck_is_wider() -> None:
    """Six federations that are right or wrong as a whole: as sure as six answers are, not as sixty."""
    scores = [[1.0, 0.0, 1.0, 1.0, 0.0, 1.0]] * 10
    low, high = two_way_interval(scores)
    narrow = interval([sum(one) / 6 for one in scores])
    assert high - low > 0.5
    assert high - low > 2 * (narrow[1] - narrow[0])


def test_the_proved_epsilon_is_below_the_true_one() -> None:
    """Randomised response at ε is the hardest case: its test errs as often as ε allows."""
    generator = np.random.default_rng(0)
    epsilon = 1.0
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    proved = [empirical_epsilon(*(generator.binomial(2000, p), 2000) * 2, delta=0.0) for _ in range(200)]
    assert np.mean(np.array(proved) <= epsilon) >= 0.95
    assert np.median(proved) > 0.8
    assert empirical_epsilon(0, 10, 0, 10, delta=0.0) == 0.0


def test_page_and_screen_say_what_was_found() -> None:
    recorded = _recorded(subject(one_each(), 5))
    found = audit(subject(one_each(), 5), replace(SMALL, shadows=0), Everything(), recorded=recorded)
    text = page("a test", found, ["five rounds"])
    assert "the server reads every record" in text
    assert "no ε is claimed; the attacks prove ε ≥" in text
    assert all(finding.attack in text and finding.verdict in screen(found) for finding in found.findings)
    for record_ in found.as_dict()["findings"]:
        assert Finding.from_dict(record_).attack == record_["attack"]


def test_findings_of_one_attack_are_told_apart_and_a_hair_above_guessing_is_no_news() -> None:
    texts = ("fellow client", "NeighbourWords", "an aim")
    some = tuple(
        Finding(*texts, knows, "a measure", 20, success, 0.4, 0.6, 0.4, 0.0, True, f"it scores {success}")
        for knows, success in ((PUBLIC, 0.42), (ALL, 0.6))
    )
    assert names(some) == ["NeighbourWords (public records)", "NeighbourWords (and the graph and names)"]
    assert names(some[:1]) == ["NeighbourWords"]
    assert "it scores 0.6" in in_words(some)
    assert "0.42" not in in_words(some)
    assert in_words(some[:1]).endswith("none of the attacks learned notably more than guessing.")
    text = page("a test", Audit(some, 0.5, 1.0), ["few"])
    assert all(line in text for line in ("| public records | **0.42**", "| and the graph and names | **0.60**"))
    assert [label.get_text() for label in draw(some).axes[0].get_yticklabels()] == [
        "fellow client: NeighbourWords (and the graph and names)",
        "fellow client: NeighbourWords (public records)",
    ]


def _recorded(of: Subject) -> Recording:
    return record(of.build(of.graph, of.seed), of.rounds)
