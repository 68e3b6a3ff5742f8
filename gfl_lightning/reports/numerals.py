"""Numbers as a reader wants them."""

from __future__ import annotations

import math

LEAST, MOST = 1e-4, 1e12
"""Beyond which a number is written with an exponent."""


def numeral(value: float, digits: int = 4) -> str:
    """A number to so many digits, but all before the point, without an exponent unless it is extreme.

    >>> numeral(0.123456), numeral(23105.64), numeral(180796.2), numeral(2.5), numeral(3e-7), numeral(1234567.8, 6)
    ('0.1235', '23106', '180796', '2.5', '3e-07', '1234568')
    """
    if not LEAST <= abs(value) < MOST:
        return f"{value:.{digits}g}"
    text = f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
