"""An envelope as one blob of bytes and back, without pickle.

A blob is a mark with a version, the CRC-32 of the rest, a header in JSON and tensors in the safetensors format.
Messages of one kind and shape are stacked over the clients they belong to. Whatever a blob holds that the rules of the
moment do not foresee is refused with a sentence. The checksum tells of damage; forgery is what TLS is for.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from gfl_lightning.deploy.envelope import Envelope
from gfl_lightning.deploy.rules import BlobError, Contents, Rules, Shape
from gfl_lightning.federated.protocol.messages import Message

MARK = b"GFL\x02"
CHECKSUM, LENGTH = 4, 4
MOST_HEADER = 2**24


def encode(envelope: Envelope) -> bytes:
    """One blob; numbers that are not finite are refused here, before they leave."""
    groups: dict[str, tuple[dict[str, Any], list[Mapping[str, Tensor]]]] = {}
    for message in envelope.messages:
        client, tensors = _taken_apart(message)
        layout = {name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in tensors.items()}
        key = json.dumps([type(message).__name__, client is None, layout])
        group, rows = groups.setdefault(key, ({"kind": type(message).__name__, "clients": [], "layout": layout}, []))
        group["clients"] += [] if client is None else [client]
        rows.append(tensors)
    stacked = {}
    for number, (group, rows) in enumerate(groups.values()):
        group["count"] = len(rows)
        for name in group["layout"]:
            whole = torch.stack([row[name] for row in rows])
            _require_finite(f"{group['kind']}.{name}", whole)
            stacked[f"{number}.{name}"] = _packed(whole) if whole.dtype == torch.bool else whole.contiguous()
    header = {
        "phase": envelope.phase,
        "round": envelope.round,
        "sender": envelope.sender,
        "notes": dict(envelope.notes),
        "groups": [group for group, _ in groups.values()],
    }
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    body = (len(text).to_bytes(LENGTH, "big"), text, safetensors.torch.save(stacked))
    return b"".join((MARK, checksum(*body), *body))


def decode(blob: bytes, rules: Rules) -> Envelope:
    """The envelope of a blob that follows the rules; any other is refused by a :class:`BlobError`."""
    header, tensors = _opened(blob, rules.max_bytes)
    for name, expected in (("sender", rules.sender), ("phase", rules.phase), ("round", rules.round)):
        _require(expected in (None, header[name]), name, f"be {expected!r}", header[name])
    kinds = {kind.__name__: kind for kind in rules.kinds}
    messages: list[Message] = []
    for number, group in enumerate(header["groups"]):
        _require(group["kind"] in kinds, "message", f"be one of {', '.join(kinds) or 'none'} here", group["kind"])
        kind = kinds[group["kind"]]
        rows = _rows(number, group, rules.kinds[kind], tensors)
        clients = _clients(kind, group, rules.clients)
        messages += [_put_together(kind, client, row) for client, row in zip(clients, rows, strict=True)]
    _require(not tensors, "blob", "hold no tensors beside its messages", sorted(tensors)[:3])
    held = [(type(one), one.client) for one in messages if hasattr(one, "client")]
    _require(len(set(held)) == len(held), "clients", "send one message of a kind", "several of one client")
    return Envelope(header["phase"], header["round"], header["sender"], tuple(messages), header["notes"])


def checksum(*parts: bytes | memoryview) -> bytes:
    """CRC-32 of all parts in a row; a cryptographic one would take eight times as long.

    >>> checksum(b"one", b"two") == checksum(b"onetwo") != checksum(b"onetwp")
    True
    """
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value.to_bytes(CHECKSUM, "big")


def _opened(blob: bytes, max_bytes: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a blob that is whole."""
    _require(len(blob) <= max_bytes, "blob", f"have at most {max_bytes} bytes", len(blob))
    start = len(MARK) + CHECKSUM
    _require(blob[: len(MARK)] == MARK, "blob", "begin with the mark of version 2 of this program", blob[:4])
    body = memoryview(blob)[start:]
    _require(checksum(body) == blob[len(MARK) : start], "blob", "agree with its checksum", "another one")
    length = int.from_bytes(body[:LENGTH], "big")
    _require(length <= min(MOST_HEADER, len(body) - LENGTH), "header", "lie within its blob", length)
    try:
        header = json.loads(bytes(body[LENGTH : LENGTH + length]), parse_constant=_refuse_constant)
        tensors = safetensors.torch.load(bytes(body[LENGTH + length :]))
    except Exception as broken:  # parsers of foreign bytes raise many kinds of errors
        raise BlobError(f"blob must be a header and tensors of this program, got {broken}.") from broken
    whole = isinstance(header, dict) and {name: type(value) for name, value in header.items()} == {
        "phase": str,
        "round": int,
        "sender": str,
        "notes": dict,
        "groups": list,
    }
    _require(whole, "header", "name phase, round, sender, notes and groups", str(header)[:80])
    for group in header["groups"]:
        fits = isinstance(group, dict) and {name: type(value) for name, value in group.items()} == {
            "kind": str,
            "clients": list,
            "layout": dict,
            "count": int,
        }
        _require(fits, "group", "name kind, clients, layout and count", str(group)[:80])
    return header, tensors


def _rows(
    number: int, group: dict[str, Any], contents: Contents, tensors: dict[str, Tensor]
) -> list[dict[str, Tensor]]:
    """The tensors of each message of a group, by field, checked against what they may be."""
    kind, count, layout = group["kind"], group["count"], group["layout"]
    _require(count >= 1, "count", "be at least 1", count)
    required = {name for name, field in contents.items() if not field.optional}
    _require(required <= set(layout) <= set(contents), kind, f"have the fields {sorted(required)}", sorted(layout))
    columns = {}
    for name, said in layout.items():
        field = contents[name]
        shapes = [list(shape) for shape in field.shapes]
        _require(
            isinstance(said, list) and len(said) == 2 and said[1] in shapes, f"{kind}.{name}", f"be {shapes}", said
        )
        shape = field.shapes[shapes.index(said[1])]
        found = tensors.pop(f"{number}.{name}", None)
        _require(found is not None, f"{kind}.{name}", "be in its blob", "nothing")
        assert found is not None
        packed = field.dtype == torch.bool
        width: Shape = (-(-math.prod(shape) // 8),) if packed else shape
        type_ = torch.uint8 if packed else field.dtype
        fits = found.dtype == type_ and tuple(found.shape) == (count, *width)
        _require(fits, f"{kind}.{name}", f"be {type_} {[count, *width]}", f"{found.dtype} {list(found.shape)}")
        _require_finite(f"{kind}.{name}", found)
        columns[name] = _unpacked(found, shape) if packed else found
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]


def _clients(kind: type[Message], group: dict[str, Any], allowed: frozenset[int]) -> list[int | None]:
    """The client of each message of a group, or nothing where the kind has none."""
    if "client" not in {field.name for field in fields(kind)}:
        _require(not group["clients"], kind.__name__, "belong to no client", group["clients"])
        return [None] * group["count"]
    clients = group["clients"]
    whole = len(clients) == group["count"] and all(type(client) is int for client in clients)
    _require(whole, kind.__name__, "name the client of each message", clients)
    foreign = sorted(set(clients) - allowed)
    _require(not foreign, kind.__name__, "be of clients of its site", f"client {foreign[:3]}")
    return list(clients)


def _taken_apart(message: Message) -> tuple[int | None, dict[str, Tensor]]:
    """The client of a message and its tensors by field; those of weights as ``field.name``."""
    tensors = {}
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, Tensor):
            tensors[field.name] = value
        elif isinstance(value, dict):
            tensors |= {f"{field.name}.{name}": part for name, part in value.items()}
    return getattr(message, "client", None), tensors


def _put_together(kind: type[Message], client: int | None, tensors: Mapping[str, Tensor]) -> Message:
    given: dict[str, Any] = {} if client is None else {"client": client}
    for name, tensor in tensors.items():
        outer, _, inner = name.partition(".")
        if inner:
            given.setdefault(outer, {})[inner] = tensor
        else:
            given[outer] = tensor
    for field in fields(kind):
        if field.name not in given and field.default is MISSING:
            raise BlobError(f"{kind.__name__} must have the field {field.name}, got {sorted(given)}.")
    return kind(**given)


def _packed(whole: Tensor) -> Tensor:
    """Booleans ``[n, …]``, eight to a byte."""
    return torch.from_numpy(np.packbits(whole.flatten(1).numpy(), axis=1))


def _unpacked(found: Tensor, shape: Shape) -> Tensor:
    bits = np.unpackbits(found.numpy(), axis=1, count=math.prod(shape))
    return torch.from_numpy(bits.astype(bool)).view(len(found), *shape)


def _require_finite(name: str, tensor: Tensor) -> None:
    """A sum is finite only if all its numbers are, and quickly made; where it is not, they are looked at."""
    finite = not tensor.is_floating_point() or bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())
    _require(finite, name, "hold finite numbers", "nan or infinity")


def _refuse_constant(text: str) -> float:
    raise BlobError(f"header must hold finite numbers, got {text}.")


def _require(condition: bool, argument: str, rule: str, received: Any) -> None:
    if not condition:
        raise BlobError(f"{argument} must {rule}, got {received!r}.")
