"""Blobs: what goes in comes out, and nothing but what is expected gets in."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gfl_lightning.deploy.codec import CHECKSUM, LENGTH, MARK, checksum, decode, encode
from gfl_lightning.deploy.contents import message_kinds
from gfl_lightning.deploy.envelope import Envelope
from gfl_lightning.deploy.rules import BlobError, Contents, Field, Rules
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.protocol.messages import (
    FactorUpload,
    JacobianUpload,
    Message,
    ModelBroadcast,
    ModelUpload,
    RepresentationUpload,
)
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.encoder import SizedEncoder
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.model import Model

CLIENTS = frozenset(range(20))
MODEL = Model(SizedEncoder(MLP((5,)), 3, 2), APPNP())
KINDS = message_kinds(MODEL, "jacobian")


def rules(kinds: Any = KINDS, **changed: Any) -> Rules:
    return replace(Rules("north", "share", 4, kinds, CLIENTS, 10**6), **changed)


def drawn(generator: torch.Generator, field: Field, shape: tuple[int, ...]) -> Tensor:
    if field.dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    return torch.randn(shape, generator=generator, dtype=field.dtype)


@st.composite
def envelopes(draw: st.DrawFn) -> tuple[Envelope, Any]:
    """Any messages of either protocol, with any of their optional tensors in any of their shapes."""
    protocol: ProtocolName = draw(st.sampled_from(["jacobian", "gram"]))
    aggregator = draw(st.sampled_from([APPNP(), LearnablePolynomial(M=2)])) if protocol == "jacobian" else APPNP()
    sizes = (draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(2, 4)))
    model = Model(SizedEncoder(MLP((sizes[0],)), *sizes[1:]), aggregator)
    kinds = message_kinds(model, protocol)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    messages: list[Message] = []
    for kind, contents in kinds.items():
        several = "client" in {field.name for field in fields(kind)}
        for client in (
            draw(st.sets(st.sampled_from(sorted(CLIENTS)), max_size=5)) if several else draw(st.sets(st.none()))
        ):
            parts: dict[str, Any] = {} if client is None else {"client": client}
            for name, field in contents.items():
                if field.optional and draw(st.booleans()):
                    continue
                tensor = drawn(generator, field, draw(st.sampled_from(field.shapes)))
                outer, _, inner = name.partition(".")
                parts = parts | ({outer: parts.get(outer, {}) | {inner: tensor}} if inner else {outer: tensor})
            messages.append(kind(**parts))
    plain = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    )
    notes = draw(st.dictionaries(st.text(), plain, max_size=3))
    return Envelope(draw(st.text()), draw(st.integers(0, 10**6)), draw(st.text()), tuple(messages), notes), kinds


def by_client(envelope: Envelope) -> dict[Any, dict[str, Any]]:
    return {(type(one).__name__, getattr(one, "client", None)): vars(one) for one in envelope.messages}


@settings(max_examples=60, deadline=None)
@given(envelopes())
def test_what_goes_in_comes_out(case: tuple[Envelope, Any]) -> None:
    envelope, kinds = case
    blob = encode(envelope)
    expected = Rules(envelope.sender, envelope.phase, envelope.round, kinds, CLIENTS, len(blob))
    found = decode(blob, expected)
    assert (found.phase, found.round, found.sender) == (envelope.phase, envelope.round, envelope.sender)
    assert found.notes == envelope.notes
    torch.testing.assert_close(by_client(found), by_client(envelope), rtol=0, atol=0)


@settings(max_examples=60, deadline=None)
@given(envelopes(), st.data())
def test_a_blob_with_any_bit_changed_or_cut_is_refused(case: tuple[Envelope, Any], data: st.DataObject) -> None:
    envelope, kinds = case
    blob = bytearray(encode(envelope))
    expected = Rules(envelope.sender, envelope.phase, envelope.round, kinds, CLIENTS, len(blob))
    place = data.draw(st.integers(0, len(blob) - 1))
    cut = bytes(blob[:place])
    blob[place] ^= 1 << data.draw(st.integers(0, 7))
    for bad in (bytes(blob), cut):
        with pytest.raises(BlobError):
            decode(bad, expected)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_under_a_right_checksum_are_refused_with_a_sentence(body: bytes) -> None:
    for text in (body, len(body).to_bytes(LENGTH, "big") + body):
        with pytest.raises(BlobError, match=r"must .*, got"):
            decode(MARK + checksum(text) + text, rules())


def upload(value: float = 0.5, client: int = 1, size: int = 2) -> RepresentationUpload:
    return RepresentationUpload(client, torch.full((size,), value))


def sent(*messages: Message, **changed: Any) -> bytes:
    return encode(replace(Envelope("share", 4, "north", messages), **changed))


def rewritten(blob: bytes, tensors: dict[str, Tensor] | None = None, **changed: Any) -> bytes:
    """A blob with another header or tensors, and the checksum that belongs to them."""
    body = blob[len(MARK) + CHECKSUM :]
    length = int.from_bytes(body[:LENGTH], "big")
    header = json.loads(body[LENGTH : LENGTH + length]) | changed
    found = safetensors.torch.load(body[LENGTH + length :]) if tensors is None else tensors
    text = json.dumps(header).encode()
    made = len(text).to_bytes(LENGTH, "big") + text + safetensors.torch.save(found)
    return MARK + checksum(made) + made


GROUP = {"kind": "RepresentationUpload", "clients": [1], "layout": {"h": ["float32", [2]]}, "count": 1}


@pytest.mark.parametrize(
    ("blob", "sentence"),
    [
        (sent(upload(), sender="south"), "sender must be 'north', got 'south'"),
        (sent(upload(), round=3), "round must be 4, got 3"),
        (sent(upload(), phase="train"), "phase must be 'share', got 'train'"),
        (sent(upload(client=20)), r"RepresentationUpload must be of clients of its site, got 'client \[20\]'"),
        (sent(upload(), upload()), "clients must send one message of a kind, got 'several of one client'"),
        (sent(upload(size=3)), r"RepresentationUpload.h must be \[\[2\]\], got \['float32', \[3\]\]"),
        (sent(FactorUpload(1, torch.zeros(5))), "message must be one of .* here, got 'FactorUpload'"),
        (rewritten(sent(upload()), {"0.h": torch.full((1, 2), math.nan)}), "RepresentationUpload.h must hold finite"),
        (rewritten(sent(upload()), {"0.h": torch.zeros(1, 2).double()}), "must be torch.float32 .* got 'torch.float64"),
        (
            rewritten(sent(upload()), {"0.h": torch.zeros(9, 2)}),
            r"be torch.float32 \[1, 2\], got 'torch.float32 \[9",
        ),
        (rewritten(sent(upload()), {}), "RepresentationUpload.h must be in its blob, got 'nothing'"),
        (rewritten(sent(upload()), groups=[]), r"blob must hold no tensors beside its messages, got \['0.h'\]"),
        (rewritten(sent(upload()), groups=[GROUP | {"count": 0}]), "count must be at least 1, got 0"),
        (rewritten(sent(upload()), groups=[GROUP | {"clients": []}]), "must name the client of each message"),
        (rewritten(sent(upload()), groups=[GROUP | {"clients": [True]}]), "must name the client of each message"),
        (rewritten(sent(upload()), groups=[GROUP | {"layout": {}}]), r"must have the fields \['h'\], got \[\]"),
        (
            rewritten(sent(upload()), groups=[GROUP | {"layout": {"h": ["float32", [2.5]]}}]),
            r"RepresentationUpload.h must be \[\[2\]\], got \['float32', \[2.5\]\]",
        ),
        (rewritten(sent(upload()), groups=["a"]), "group must name kind, clients, layout and count"),
        (rewritten(sent(upload()), round="4"), "header must name phase, round, sender, notes and groups"),
        (rewritten(sent(upload()), notes={"n": math.nan}), "header must hold finite numbers, got NaN"),
        (b"GFL\x01" + sent(upload())[4:], "blob must begin with the mark of version 2 of this program"),
    ],
)
def test_what_is_not_expected_is_refused(blob: bytes, sentence: str) -> None:
    with pytest.raises(BlobError, match=sentence):
        decode(blob, rules())


def test_a_shape_in_other_numbers_is_the_shape_that_it_equals() -> None:
    """JSON has 2.0 and true beside 2 and 1; what follows reckons with the shape of the rules."""
    kinds = message_kinds(Model(SizedEncoder(MLP((5,)), 3, 2), APPNP()), "gram")
    whole = FactorUpload(1, torch.zeros(5), torch.ones(5, dtype=torch.bool), torch.zeros(3))
    layout = {"activation": ["float32", [5.0]], "pattern": ["bool", [5.0]], "direction": ["float32", [3.0]]}
    group = {"kind": "FactorUpload", "clients": [1], "layout": layout, "count": 1}
    (found,) = decode(rewritten(sent(whole), groups=[group]), rules(kinds)).of(FactorUpload)
    assert found.pattern is not None
    assert found.pattern.tolist() == [True] * 5


def test_a_blob_that_is_too_large_is_not_even_read() -> None:
    with pytest.raises(BlobError, match="blob must have at most 10 bytes, got"):
        decode(sent(upload()), rules(max_bytes=10))


def test_numbers_that_are_not_finite_do_not_leave() -> None:
    with pytest.raises(BlobError, match=r"RepresentationUpload\.h must hold finite numbers"):
        sent(upload(math.inf))


def test_the_messages_of_a_site_are_stacked_and_booleans_packed() -> None:
    """Framing does not grow with the clients: their numbers are nearly all of a blob."""
    kinds: dict[type[Message], Contents] = {
        **message_kinds(Model(SizedEncoder(MLP(), 300, 7), APPNP()), "gram"),
    }
    made = [FactorUpload(k, torch.zeros(64), torch.ones(64, dtype=torch.bool)) for k in range(20)]
    blob = sent(*made)
    assert len(blob) - sum(message.nbytes for message in made) < 600
    assert decode(blob, rules(kinds)).of(FactorUpload)[19].pattern.all()  # type: ignore[union-attr]


def test_finite_numbers_pass_even_if_their_sum_does_not() -> None:
    h = torch.full((2,), 3e38)
    assert decode(sent(RepresentationUpload(3, h)), rules()).of(RepresentationUpload)[0].h.equal(h)
    for bad in (math.inf, -math.inf, math.nan):
        with pytest.raises(BlobError, match="must hold finite numbers"):
            sent(RepresentationUpload(3, torch.tensor([bad, -bad])))


def test_weights_of_any_names_pass() -> None:
    W = {"W1": torch.randn(5, 3), "W2": torch.randn(2, 5)}
    J = {name: torch.randn(2, *weight.shape) for name, weight in W.items()}
    found = decode(sent(ModelUpload(1, W), ModelBroadcast(W), JacobianUpload(1, J)), rules())
    torch.testing.assert_close(found.of(ModelBroadcast)[0].weights, W, rtol=0, atol=0)
    torch.testing.assert_close(found.of(JacobianUpload)[0].jacobian, J, rtol=0, atol=0)
