"""Errors that speak to the user: one sentence with the argument, the rule and the value received."""

from __future__ import annotations

import math
from typing import Any


class InputError(ValueError):
    """A user's mistake; its text is one complete sentence that needs no traceback."""


def require(condition: bool, argument: str, rule: str, received: Any) -> None:
    """Raise ``InputError("<argument> must <rule>, got <received>.")`` unless ``condition`` holds."""
    if not condition:
        raise InputError(f"{argument} must {rule}, got {received!r}.")


def require_count(argument: str, value: int, least: int = 1) -> None:
    """Refuse anything but a whole number of at least ``least``."""
    require(type(value) is int, argument, f"be a whole number of at least {least}", value)
    require(value >= least, argument, f"be at least {least}", value)


def require_choice(argument: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not among the choices."""
    require(value in choices, argument, f"be one of {', '.join(choices)}", value)


def require_rate(argument: str, value: float) -> None:
    """Refuse a learning rate that is not positive and finite."""
    require(0 < value < math.inf, argument, "be positive and finite", value)
