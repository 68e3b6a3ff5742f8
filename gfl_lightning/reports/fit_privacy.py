"""What a fit promises, what that covers and what it costs, in facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gfl_lightning.reports.screen import part_text


def privacy_facts(privacy: Mapping[str, Any]) -> dict[str, Any]:
    """The guarantee of a summary."""
    outside = [str(one) for one in privacy["outside"]]
    facts: dict[str, Any] = {
        "guarantee": privacy["sentence"],
        "covers": f"{privacy['unit']}; {privacy['composed']}",
        "does not cover": ", ".join(outside) or "nothing that was released",
    }
    for kind, part in privacy["protection"].items():
        facts[f"noise on {kind}"] = ", ".join(f"{name} {part_text(value)}" for name, value in part.items())
    facts["cost"] = (
        "Bounds and noise above are what it costs in signal. What they cost in score is the difference to the same fit "
        "without them, which is not trained here, as that would be a release: measure it on rows that may be seen."
    )
    facts["this page"] = (
        "Its scores, curves and counts are exact and not covered: it is for those who may see the rows."
    )
    return facts
