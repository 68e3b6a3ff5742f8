"""A masked sum is the sum; what the server has of one site looks random, whoever drops out and whenever."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from masked_sums import RUN, met, names, opened, prepared, uploaded
from scipy.stats import chisquare
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.masking.announcements import pair_context, roster_digest
from gfl_lightning.deploy.masking.fixed_point import FixedPoint, Words
from gfl_lightning.deploy.masking.keys import AgreementKey, Identity, derived
from gfl_lightning.deploy.masking.masker import Masker
from gfl_lightning.deploy.masking.messages import MaskedUpload, Opening, Roster, to_bytes
from gfl_lightning.deploy.masking.quorum import Quorum
from gfl_lightning.deploy.masking.shamir import recover
from gfl_lightning.deploy.masking.streams import add_streams
from gfl_lightning.deploy.masking.ticket import Ticket
from gfl_lightning.deploy.masking.unmasker import Unmasker

SHARE, TRAIN = Ticket(RUN, 0, "share"), Ticket(RUN, 0, "train")


def some_values(count: int, size: int = 7, seed: int = 0) -> dict[str, Tensor]:
    drawn = 3 * torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return dict(zip(names(count), drawn, strict=True))


@settings(max_examples=25, deadline=None)
@given(data=st.data(), count=st.integers(3, 7), seed=st.integers(0, 99))
def test_a_masked_sum_is_the_sum_of_those_who_uploaded(data: st.DataObject, count: int, seed: int) -> None:
    """Sites may be missing from the start, before the upload and after it, as long as a quorum is there."""
    code = data.draw(st.sampled_from([FixedPoint(), FixedPoint(32, 18)]))
    server, sites = met(count, code)
    lost = count - max(Quorum().threshold_of(count), 3)
    gone = data.draw(st.lists(st.sampled_from(names(count)), max_size=lost, unique=True))
    never = gone[: data.draw(st.integers(0, len(gone)))]
    prepared(server, sites, [SHARE, TRAIN], absent=never)
    values = some_values(count, seed=seed)
    for ticket in (SHARE, TRAIN):
        uploads = uploaded(sites, ticket, values, absent=gone)
        silent = data.draw(st.lists(st.sampled_from(sorted(uploads)), max_size=lost - len(gone), unique=True))
        total = code.decode(opened(server, sites, ticket, uploads, absent=silent))
        expected = torch.stack([values[name] for name in uploads]).sum(0)
        torch.testing.assert_close(total, expected, rtol=0, atol=code.error(count))


def p_value_of_uniform(words: Words) -> float:
    counts = np.bincount(words.view(np.uint8), minlength=256)
    return float(chisquare(counts).pvalue)


@pytest.mark.parametrize("code", [FixedPoint(), FixedPoint(32, 18)])
def test_an_upload_looks_random_and_so_do_differences(code: FixedPoint) -> None:
    """Byte counts of what all-zero contributions become, of two uploads' difference and of two rounds' difference."""
    server, sites = met(4, code)
    later = Ticket(RUN, 1, "share")
    prepared(server, sites, [SHARE, TRAIN, later])
    zero = dict.fromkeys(sites, torch.zeros(40_000))
    seen = {t: {k: code.words(u.words) for k, u in uploaded(sites, t, zero).items()} for t in (SHARE, TRAIN, later)}
    looks = [words for by_site in seen.values() for words in by_site.values()]
    looks += [a - b for a, b in pairwise(seen[SHARE].values())]
    looks += [seen[SHARE][name] - seen[other][name] for name in sites for other in (TRAIN, later)]
    looks += [seen[SHARE]["site00"] + seen[SHARE]["site01"] + seen[SHARE]["site02"]]
    values = [p_value_of_uniform(words) for words in looks]
    assert min(values) > 1e-4 / len(values)
    assert max(p_value_of_uniform(code.encode(torch.randn(40_000), 4)) for _ in range(3)) < 1e-9, "the test can fail"
    assert not (opened(server, sites, SHARE, {k: MaskedUpload(code.tensor(w)) for k, w in seen[SHARE].items()})).any()


def test_parts_for_one_receiver_are_read_by_its_site_alone() -> None:
    code = FixedPoint()
    server, sites = met(3)
    prepared(server, sites, [SHARE])
    values = some_values(3, size=6000)
    mine = {"site00": [slice(0, 2000)], "site01": [slice(2000, 3000), slice(3000, 4000)], "site02": [slice(4000, 6000)]}
    total = opened(server, sites, SHARE, uploaded(sites, SHARE, values, for_me=mine))
    expected = torch.stack(list(values.values())).sum(0)
    assert p_value_of_uniform(total) > 1e-6
    for name, parts in mine.items():
        for number, part in enumerate(parts):
            read = sites[name].unsealed(SHARE, number, code.tensor(total[part]))
            torch.testing.assert_close(read, expected[part], rtol=0, atol=code.error(3))
    with pytest.raises(InputError, match="a sealed sum must be of a sum that this site has sealed"):
        sites["site00"].unsealed(TRAIN, 0, code.tensor(total[:3]))


def test_an_upload_that_comes_too_late_stays_masked() -> None:
    """The server knows the key of a site that was given up, and can take its pairwise masks off; its own mask stays."""
    code = FixedPoint()
    server, sites = met(5)
    prepared(server, sites, [TRAIN])
    announcements, seed = server._announcements[TRAIN], sites["site02"]._secrets[TRAIN].seed
    uploads = uploaded(sites, TRAIN, {name: torch.zeros(40_000) for name in sites})
    survivors = sorted(set(sites) - {"site02"})
    openings = {name: sites[name].open(TRAIN, survivors) for name in survivors}
    shares = {1 + server.sites.index(name): to_bytes(told.shares["site02"]) for name, told in openings.items()}
    recovered = recover(shares)
    assert recovered is not None
    key, digest = AgreementKey.of(recovered), roster_digest(TRAIN, announcements)
    words = code.words(uploads["site02"].words)
    for name in survivors:
        pair = [key.agree(announcements[name].public, pair_context(TRAIN, digest, name, "site02"))]
        add_streams(words, *(([], pair) if name > "site02" else (pair, [])))
    assert p_value_of_uniform(words) > 1e-6
    add_streams(words, minus=[derived(seed, TRAIN.context("own mask"))])
    assert not words.any(), "the seed, which nobody tells, is all that was missing"
    with pytest.raises(InputError, match="train of round 0 must be a sum that this site has contributed to"):
        sites["site00"].open(TRAIN, sorted(uploads))


def test_a_site_does_not_help_with_a_second_sum_of_the_same_values() -> None:
    server, sites = met(5)
    prepared(server, sites, [TRAIN])
    uploads = uploaded(sites, TRAIN, some_values(5))
    opened(server, sites, TRAIN, uploads)
    prepared(server, sites, [TRAIN])
    again = uploaded(sites, TRAIN, some_values(5), absent=["site04"])
    with pytest.raises(
        InputError, match="train of round 0 must be opened over site00, site01, site02, site03, site04 as"
    ):
        opened(server, sites, TRAIN, again)
    prepared(server, sites, [TRAIN])
    opened(server, sites, TRAIN, uploaded(sites, TRAIN, some_values(5)))


def test_a_site_uploads_once_with_the_same_masks() -> None:
    server, sites = met(3)
    prepared(server, sites, [TRAIN])
    sites["site00"].masked(TRAIN, torch.zeros(2))
    with pytest.raises(InputError, match="train of round 0 must be prepared by this site and uploaded once"):
        sites["site00"].masked(TRAIN, torch.ones(2))
    with pytest.raises(InputError, match="share of round 0 must be prepared"):
        sites["site00"].masked(SHARE, torch.ones(2))


def test_too_few_sites_open_nothing() -> None:
    server, sites = met(5)
    prepared(server, sites, [TRAIN])
    uploads = uploaded(sites, TRAIN, some_values(5))
    two = {name: uploads[name] for name in ("site00", "site01")}
    with pytest.raises(InputError, match="at least 3 of 5 sites to be opened, got site00, site01"):
        server.survivors(TRAIN, two)
    with pytest.raises(InputError, match="at least 3 of 5 sites to be opened"):
        sites["site00"].open(TRAIN, sorted(two))
    openings = {name: sites[name].open(TRAIN, sorted(uploads)) for name in ("site00", "site01")}
    with pytest.raises(
        InputError, match="must be opened by 3 sites, got site00, site01; what was uploaded for it stays"
    ):
        server.total(TRAIN, uploads, openings)


def test_a_server_that_tells_sites_different_things_opens_nothing() -> None:
    """Two majorities share a site, and it tells one share of each site only."""
    server, sites = met(5)
    prepared(server, sites, [TRAIN])
    uploads = uploaded(sites, TRAIN, some_values(5))
    without = sorted(set(uploads) - {"site04"})
    openings = {name: sites[name].open(TRAIN, sorted(uploads)) for name in ("site00", "site01")}
    openings |= {name: sites[name].open(TRAIN, without) for name in ("site02", "site03")}
    openings["site04"] = sites["site04"].open(TRAIN, sorted(uploads))
    for fewer in ({}, {"site04": uploads["site04"]}):
        taken = {name: upload for name, upload in uploads.items() if name != "site04"} | fewer
        helpers = [{"site00", "site01", "site02"}, {"site01", "site02", "site03"}, {"site02", "site03", "site04"}]
        for chosen in helpers:
            with pytest.raises(
                InputError, match="the shares of site site04 for train of round 0 must give the secret it"
            ):
                server.total(TRAIN, taken, {name: openings[name] for name in chosen})


def test_a_server_cannot_make_a_few_sites_the_whole_federation() -> None:
    """Eight sites know each other's keys; a roll, a roster or a list of survivors with four of them opens nothing."""
    server, sites = met(8)
    few = names(4)
    with pytest.raises(InputError, match="enrolment of round 0 must have the uploads of at least 5 of 8 sites"):
        sites["site00"].meet(Unmasker().roll({name: sites[name].enrol() for name in few}))
    preparations = {name: site.prepare([TRAIN]) for name, site in sites.items()}
    roster = server.rosters([TRAIN], preparations)["site00"]
    short = Roster(*({name: part for name, part in parts.items() if name in few} for parts in vars(roster).values()))
    with pytest.raises(InputError, match="at least 5 of 8 sites"):
        sites["site00"].learn([TRAIN], short)


def test_a_false_share_is_noticed() -> None:
    server, sites = met(3)
    prepared(server, sites, [TRAIN])
    uploads = uploaded(sites, TRAIN, some_values(3))
    openings = {name: sites[name].open(TRAIN, sorted(uploads)) for name in sites}
    openings["site00"] = Opening({**openings["site00"].shares, "site02": torch.zeros(33, dtype=torch.uint8)})
    with pytest.raises(InputError, match="the shares of site site02 for train of round 0 must"):
        server.total(TRAIN, uploads, openings)


def test_the_server_cannot_put_keys_of_its_own_in_a_sites_place() -> None:
    server, sites = met(3)
    preparations = {name: site.prepare([TRAIN]) for name, site in sites.items()}
    _, strangers = met(3)
    forged = strangers["site01"].prepare([TRAIN])
    for replaced in (
        replace(preparations["site01"], announced=forged.announced),
        replace(preparations["site01"], announced=forged.announced, signature=forged.signature),
    ):
        with pytest.raises(InputError, match="the keys of site site01 from train of round 0 on must be signed"):
            server.rosters([TRAIN], {**preparations, "site01": replaced})
    rosters = server.rosters([TRAIN], preparations)
    with pytest.raises(InputError, match="the keys of site site00 from train of round 1 on must be signed"):
        _later(sites, rosters["site02"])
    broken = replace(rosters["site02"], boxes={**rosters["site02"].boxes, "site01": forged.boxes["site02"]})
    with pytest.raises(
        InputError, match="the box of site site01 from train of round 0 on must be locked by it for site02"
    ):
        sites["site02"].learn([TRAIN], broken)


def _later(sites: dict[str, Masker], roster: object) -> None:
    """A replayed roster of another round: its boxes are for the one it was made for."""
    site = sites["site02"]
    boxes = {
        name: other.prepare([Ticket(RUN, 1, "train")]).boxes["site02"] for name, other in sites.items() if other != site
    }
    site.prepare([Ticket(RUN, 1, "train")])
    site.learn([Ticket(RUN, 1, "train")], replace(roster, boxes=boxes))  # type: ignore[type-var]


def test_a_stranger_is_not_enrolled() -> None:
    identities = {name: Identity.new() for name in names(3)}
    trusted = {name: identity.public for name, identity in identities.items()}
    sites = {name: Masker(name, identity, RUN, trusted=trusted) for name, identity in identities.items()}
    sites["site01"] = Masker("site01", Identity.new(), RUN, trusted=trusted)
    roll = Unmasker().roll({name: site.enrol() for name, site in sites.items()})
    with pytest.raises(InputError, match="site site01 must enrol with the identity that is known of it"):
        sites["site00"].meet(roll)
    without = replace(
        roll, identity={k: v for k, v in roll.identity.items() if k != "site00"} | {"x": roll.identity["site01"]}
    )
    with pytest.raises(InputError, match="the roll must have everything of every site that it names"):
        sites["site00"].meet(without)
    for part in ("identity", "channel", "signature", "shares"):
        less = {k: v for k, v in getattr(roll, part).items() if k != "site02"}
        with pytest.raises(InputError, match="the roll must have everything of every site that it names"):
            sites["site00"].meet(replace(roll, **{part: less}))


def test_shares_of_noise_are_a_sites_own_word() -> None:
    """A server that counts more noise than a site has promised is refused by that site and by the others."""
    identities = {name: Identity.new() for name in names(3)}
    trusted = {name: identity.public for name, identity in identities.items()}
    sites = {name: Masker(name, identity, RUN, trusted=trusted, shares=2) for name, identity in identities.items()}
    roll = Unmasker().roll({name: site.enrol() for name, site in sites.items()})
    sites["site00"].meet(roll)
    assert sites["site00"].shares_of == dict.fromkeys(names(3), 2)
    more = replace(roll, shares=roll.shares | {"site01": torch.tensor([9])})
    with pytest.raises(InputError, match="site site01 must enrol with the identity that is known of it"):
        sites["site00"].meet(more)
    with pytest.raises(InputError, match="the roll must have the keys of this site, site01"):
        sites["site01"].meet(more)


@pytest.mark.parametrize(
    ("quorum", "sites", "text"),
    [
        (Quorum(), 2, "sites must be at least 3 for masked sums, got 2"),
        (Quorum(threshold=2), 4, "threshold must be more than half of the 4 sites"),
        (Quorum(threshold=5), 4, "threshold must be more than half of the 4 sites and no more than all, got 5"),
    ],
)
def test_a_quorum_that_promises_nothing_is_refused(quorum: Quorum, sites: int, text: str) -> None:
    with pytest.raises(InputError, match=text):
        quorum.threshold_of(sites)


def test_a_masked_upload_is_as_large_as_its_numbers() -> None:
    server, sites = met(3)
    prepared(server, sites, [TRAIN, SHARE])
    assert sites["site00"].masked(TRAIN, torch.zeros(1000)).nbytes == 8000
    assert sites["site00"].prepare([Ticket(RUN, t, "share") for t in range(20)]).nbytes == 20 * 64 + 64 + 2 * (
        20 * 66 + 28
    )
