"""Errors that speak to the user: one sentence with the argument, the rule and the value received."""

from __future__ import annotations

from typing import Any


class InputError(ValueError):
    """A user's mistake; its text is one complete sentence that needs no traceback."""


def require(condition: bool, argument: str, rule: str, received: Any) -> None:
    """Raise ``InputError("<argument> must <rule>, got <received>.")`` unless ``condition`` holds."""
    if not condition:
        raise InputError(f"{argument} must {rule}, got {received!r}.")
