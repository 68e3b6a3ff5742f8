"""Loaded by the interpreter of a site's processes in a test: it does what ``GFL_FAULTS`` says, each fault once.

``GFL_FAULTS`` is a JSON list of faults with a phase, a round (any, where there is none) and what happens there:

- ``kill``: the site's process kills itself with −9 when it is asked, ``kill answered`` when its answer is made and
  written down, ``kill site`` with everything that the operator has started and the operator;
- ``pause``: it stops (SIGSTOP) until somebody lets it go on;
- ``nan``, ``large``, ``replay``, ``identity``: its answer is not finite, too large, of the round before or another's.

What has happened is noted by an empty file ``fault-NUMBER`` in the site's folder, before it happens.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

FAULTS = json.loads(os.environ.get("GFL_FAULTS", "[]"))

if FAULTS:
    import psutil
    import torch

    from gfl_lightning.deploy import codec, site
    from gfl_lightning.deploy.envelope import Envelope

    answer, encode, check = site.Site.answer, site.encode, codec._require_finite
    wrong: list[str] = []

    def round_of(blob: bytes) -> int:
        text = blob[len(codec.MARK) + codec.CHECKSUM :]
        length = int.from_bytes(text[: codec.LENGTH], "big")
        return int(json.loads(text[codec.LENGTH : codec.LENGTH + length])["round"])

    def due(folder: Path, phase: str, t: int) -> list[str]:
        """What is to happen now."""
        found = []
        for number, fault in enumerate(FAULTS):
            note = folder / f"fault-{number}"
            if fault["phase"] == phase and fault.get("round", t) == t and not note.exists():
                note.parent.mkdir(parents=True, exist_ok=True)
                note.touch()
                found.append(fault["what"])
        return found

    def kill_site() -> None:
        """The operator, what it has started, and this process last."""
        for parent in psutil.Process().parents():
            words = parent.cmdline()
            parent.kill()
            if "deploy" in words and "site" in words:
                break

    def answered(self: Any, phase: str, blob: bytes) -> bytes:
        what = due(self.folder.parent, phase, round_of(blob))
        if "kill site" in what:
            kill_site()
        if "kill" in what or "kill site" in what:
            os.kill(os.getpid(), signal.SIGKILL)
        if "pause" in what:
            os.kill(os.getpid(), signal.SIGSTOP)
        wrong[:] = what
        reply = answer(self, phase, blob)
        if "kill answered" in what:
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    def encoded(envelope: Envelope) -> bytes:
        """The answer, or what stands in its place."""
        if "nan" in wrong:
            spoilt = [replace(m, h=m.h * torch.nan) if hasattr(m, "h") else m for m in envelope.messages]
            codec._require_finite = lambda name, tensor: None
            try:
                return encode(replace(envelope, messages=tuple(spoilt)))
            finally:
                codec._require_finite = check
        if "large" in wrong:
            return encode(replace(envelope, notes={"padding": "x" * 2**24}))
        if "replay" in wrong:
            return encode(replace(envelope, round=envelope.round - 1))
        return encode(replace(envelope, sender="south") if "identity" in wrong else envelope)

    site.Site.answer = answered  # type: ignore[method-assign]
    site.encode = encoded  # type: ignore[assignment]
