"""Arithmetic on whole numbers of 64 bits that says where a result does not fit, instead of wrapping around.

Each function takes arrays or single numbers and returns (results, where missing, where it does not fit); None stands for
nowhere. What lies under a missing or unfit place has no meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

LEAST, MOST = -(2**63), 2**63 - 1
#: A product in float64 is this close to the one in int64, at the very least, unless that one has wrapped around: then it
#: is 2**64 away.
_NEAR = 2.0**32

Answer = tuple[Any, Any, Any]


def fits(number: int) -> bool:
    """Say whether a Python number is one of 64 bits."""
    return LEAST <= number <= MOST


def _range(numbers: Any) -> tuple[int, int]:
    """Return the least and the greatest: most columns cannot leave 64 bits, which so is found out without a copy."""
    if type(numbers) is not np.ndarray:
        return int(numbers), int(numbers)
    if not len(numbers):
        return 0, 0
    return int(np.minimum.reduce(numbers)), int(np.maximum.reduce(numbers))


def _add(a: Any, b: Any) -> Answer:
    total = np.add(a, b)
    (low, high), (low_b, high_b) = _range(a), _range(b)
    if low + low_b >= LEAST and high + high_b <= MOST:
        return total, None, None
    return total, None, ((a ^ total) & (b ^ total)) < 0


def _subtract(a: Any, b: Any) -> Answer:
    rest = np.subtract(a, b)
    (low, high), (low_b, high_b) = _range(a), _range(b)
    if low - high_b >= LEAST and high - low_b <= MOST:
        return rest, None, None
    return rest, None, ((a ^ b) & (a ^ rest)) < 0


def _multiply(a: Any, b: Any) -> Answer:
    product = np.multiply(a, b)
    corners = [x * y for x in _range(a) for y in _range(b)]
    if min(corners) >= LEAST and max(corners) <= MOST:
        return product, None, None
    return product, None, np.abs(np.multiply(a, b, dtype=np.float64) - product) > _NEAR


def _raise_to(a: Any, b: Any) -> Answer:
    # a whole number has no negative power that is one
    negative = np.less(b, 0)
    power = np.where(negative, 0, b)
    result = np.power(a, power)
    return result[()], None, (np.abs(np.float_power(a, power) - result) > _NEAR) | negative


def _negate(a: Any) -> Answer:
    return np.negative(a), None, np.equal(a, LEAST) if _range(a)[0] == LEAST else None


def _absolute(a: Any) -> Answer:
    return np.absolute(a), None, np.equal(a, LEAST) if _range(a)[0] == LEAST else None


def _division(divide: Callable[[Any, Any], Any], *, grows: bool) -> Callable[[Any, Any], Answer]:
    """Return a division that is missing where the divisor is 0; by -1, the least number `grows` beyond the greatest."""

    def run(a: Any, b: Any) -> Answer:
        zero = np.equal(b, 0)
        some = zero.any()
        result = divide(a, np.where(zero, 1, b)[()] if some else b)
        overflow = np.equal(a, LEAST) & np.equal(b, -1) if grows and not (type(b) is int and b != -1) else None
        return result, zero if some else None, overflow

    return run


def _quotient(a: Any, b: Any) -> Any:
    below = np.floor_divide(a, b)
    # rounded down; what is below zero and leaves a rest is one too low
    return below + ((np.not_equal(np.multiply(below, b), a)) & (np.less(a, 0) != np.less(b, 0)))


def _round(a: Any, digits: int) -> Answer:
    """Round to tens, hundreds …, half to even."""
    if digits >= 0:
        return a, None, None
    unit = 10 ** int(-digits)
    if unit > MOST:
        return np.multiply(a, 0), None, np.less(a, -unit // 2) | np.greater(a, unit // 2)
    rest = np.mod(a, unit)
    below = np.subtract(a, rest)
    wrapped = np.greater(below, a)  # mended by going up
    odd = np.not_equal(np.mod(np.floor_divide(a, unit), 2), 0)
    up = np.greater(rest, unit - rest) | (np.equal(rest, unit - rest) & odd)
    overflow = (up & ~wrapped & np.greater(below, MOST - unit)) | (~up & wrapped)
    return below + np.multiply(up, unit), None, overflow


def _same(a: Any) -> Answer:
    return a, None, None


#: By the name that the function has in expressions. Those that are not here never leave 64 bits.
WHOLE: dict[str, Callable[..., Answer]] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "pow": _raise_to,
    "neg": _negate,
    "abs": _absolute,
    "floor": _same,
    "ceil": _same,
    "round": _round,
    "floordiv": _division(np.floor_divide, grows=True),
    "mod": _division(np.mod, grows=False),
    "quotient": _division(_quotient, grows=True),
    "remainder": _division(np.fmod, grows=False),
}
