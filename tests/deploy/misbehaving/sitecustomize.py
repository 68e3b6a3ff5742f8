"""Loaded by the interpreter of a site's processes in a test: its answers in some rounds are not what they should be.

``GFL_MISBEHAVE`` names what is wrong with the answer to *share* in each of the rounds 2, 3, …
"""

from __future__ import annotations

import os
from dataclasses import replace

WRONG = os.environ.get("GFL_MISBEHAVE", "").split(",")

if WRONG[0]:
    import torch

    from gfl_lightning.deploy import codec, site
    from gfl_lightning.deploy.envelope import Envelope

    encode, check = site.encode, codec._require_finite

    def misbehaving(envelope: Envelope) -> bytes:
        place = envelope.round - 2
        if envelope.phase != "share" or not 0 <= place < len(WRONG):
            return encode(envelope)
        kind = WRONG[place]
        if kind == "nan":
            spoilt = [replace(m, h=m.h * torch.nan) if hasattr(m, "h") else m for m in envelope.messages]
            codec._require_finite = lambda name, tensor: None
            try:
                return encode(replace(envelope, messages=tuple(spoilt)))
            finally:
                codec._require_finite = check
        if kind == "large":
            return encode(replace(envelope, notes={"padding": "x" * 2**24}))
        if kind == "replay":
            return encode(replace(envelope, round=envelope.round - 1))
        assert kind == "identity"
        return encode(replace(envelope, sender="south"))

    site.encode = misbehaving  # type: ignore[assignment]
