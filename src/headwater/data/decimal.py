"""Numbers as text: reading decimals with correct rounding, writing 32-bit floats in their shortest form."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel, small_kernel, uncompiled

_MINUS, _PLUS, _DOT, _ZERO, _NINE = 45, 43, 46, 48, 57
_UPPER_E, _LOWER_E = 69, 101
_EXACT_INT = 2**53  # the whole numbers up to here, and the powers of ten up to 10**22, are exact as 64-bit floats
_TEN = np.array([10.0**i for i in range(23)])
_WHOLE_TEN = np.array([10**i for i in range(10)])
_HUNDRED, _TEN_THOUSAND = np.uint32(100), np.uint32(10_000)
_PAIRS = np.frombuffer(bytearray(b"".join(b"%02d" % i for i in range(100))), np.uint8)
# For 32-bit floats by their exponents, from 0.001 on: at so many decimal places some number is sure to round to the float,
# at one less perhaps, and at fewer only what has zeros at its end.
_FIRST_EXPONENT = 117
_PLACES = np.array([max(1, math.ceil((24 - e) * math.log10(2))) for e in range(-9, 25)])
# Half of the way to the next float: what is less far away rounds to the same.
_HALF_STEP = np.array([2.0 ** (e - 25) for e in range(-9, 25)])
_MANTISSA = 0x7FFFFF
_NAN = np.frombuffer(b"NaN", np.uint8)
_INFINITY = np.frombuffer(b"Infinity", np.uint8)


@small_kernel
def read_exponent(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int]:
    """Read an exponent of up to four digits, 0 where there is none; return it and its end, -1 if it has no digit."""
    if at >= stop or (data[at] != _LOWER_E and data[at] != _UPPER_E):
        return 0, at
    at += 1
    down = at < stop and data[at] == _MINUS
    if at < stop and (data[at] == _MINUS or data[at] == _PLUS):
        at += 1
    first, exponent = at, 0
    while at < stop and _ZERO <= data[at] <= _NINE and at - first < 4:
        exponent, at = exponent * 10 + (int(np.int64(data[at])) - _ZERO), at + 1
    return (-exponent if down else exponent), (at if at > first else -1)


@kernel
def read_decimal(data: NDArray[np.uint8], start: int, stop: int) -> tuple[float, bool]:
    """Read `data[start:stop]` as Python's `float` would; (0.0, False) when that takes more than one rounding.

    The caller then asks `float` itself, which also settles what is not a plain decimal: spaces, `inf`, text.
    """
    at = start
    negative = at < stop and data[at] == _MINUS
    if at < stop and (data[at] == _MINUS or data[at] == _PLUS):
        at += 1
    mantissa, power, first = 0, 0, at
    while at < stop and _ZERO <= data[at] <= _NINE:
        mantissa = mantissa * 10 + (int(data[at]) - _ZERO)
        at += 1
    digits = at - first
    if at < stop and data[at] == _DOT:
        at += 1
        point = at
        while at < stop and _ZERO <= data[at] <= _NINE:
            mantissa = mantissa * 10 + (int(data[at]) - _ZERO)
            at += 1
        power = point - at
        digits += at - point
    if digits == 0 or digits > 18:  # 18 digits always fit an int64; more may have overflowed
        return 0.0, False
    exponent, at = read_exponent(data, at, stop)
    power += exponent
    if at != stop or mantissa > _EXACT_INT or power < -22 or power > 22:
        return 0.0, False
    value = float(mantissa)
    value = value / _TEN[-power] if power < 0 else value * _TEN[power]
    return (-value if negative else value), True


@kernel
def _count_digits(value: int) -> int:
    digits, limit = 1, 10
    while value >= limit and digits < 18:
        digits, limit = digits + 1, limit * 10
    return digits if value < limit else 19


@kernel
def write_digits(value: int, count: int, out: NDArray[np.uint8], at: int) -> int:
    """Write the last `count` digits of a number >= 0, with zeros in front; return where they end."""
    i = at + count
    while i - at >= 2:
        i -= 2
        pair = value % 100
        value //= 100
        out[i], out[i + 1] = _ZERO + pair // 10, _ZERO + pair % 10
    if i > at:
        out[at] = _ZERO + value % 10
    return at + count


@kernel
def write_int(value: int, out: NDArray[np.uint8], at: int) -> int:
    """Write a whole number at `out[at:]`; return where it ends. The lowest int64 is not for this function."""
    if value < 0:
        out[at] = _MINUS
        at, value = at + 1, -value
    return write_digits(value, _count_digits(value), out, at)


@kernel
def _shift10(x: float, power: int) -> float:
    while power > 22:
        x, power = x * _TEN[22], power - 22
    while power < -22:
        x, power = x / _TEN[22], power + 22
    return float(x * _TEN[power] if power >= 0 else x / _TEN[-power])


@kernel
def _shortest(x: float) -> tuple[int, int]:
    # The shortest whole number, with the power of ten, whose product rounds to the 32-bit float x > 0.
    target = np.float32(x)
    if 1e-3 <= x < 1e7:
        places = int(_PLACES[(target.view(np.int32) >> 23) - _FIRST_EXPONENT])
        for decimals in range(places - 1, places + 1):
            best = int(x * _TEN[decimals] + 0.5)
            if np.float32(best / _TEN[decimals]) == target:
                power = -decimals
                while best % 10 == 0:
                    best, power = best // 10, power + 1
                return best, power
    power = int(np.floor(np.log10(x))) - 8  # nine digits tell any 32-bit float from its neighbours
    half_step = abs(float(np.nextafter(target, np.float32(np.inf))) - x) / 2
    if not np.isfinite(half_step):
        half_step = abs(x - float(np.nextafter(target, np.float32(0)))) / 2
    digits = int(np.rint(_shift10(x, -power)))
    low, high = _shift10(x - half_step, -power), _shift10(x + half_step, -power)
    # One digit less as long as the nearest such number is still between the borders of the float.
    scale, best, best_power = 10, digits, power
    while scale <= digits * 10:
        shorter = (digits + scale // 2) // scale * scale
        if not low < shorter < high:
            break
        best, best_power = shorter // scale, best_power + 1
        scale *= 10
    # Borders are only known to 53 bits; when that was not enough, try all lengths.
    if np.float32(_shift10(float(best), best_power)) != target:
        for count in range(1, 10):
            best_power = power + 9 - count
            best = int(np.rint(_shift10(x, -best_power)))
            if np.float32(_shift10(float(best), best_power)) == target:
                break
    while best % 10 == 0:
        best, best_power = best // 10, best_power + 1
    return best, best_power


@kernel
def _widen(values: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    # The floats, and which of them are so large or so small that a text has to say.
    out, odd, many = np.empty(len(values), np.float64), np.empty(len(values), np.int64), 0
    for i in range(len(values)):
        x = float(values[i])
        out[i] = x
        if x == 0.0 or not np.isfinite(x):
            continue
        if not 1e-3 <= abs(x) < 1e7:
            odd[many] = i
            many += 1
            continue
        digits, power = _shortest(abs(x))
        if power < 0 and digits % 2 and abs(x) * _TEN[-power] - digits == -0.5:
            digits -= 1  # of two that are as near, NumPy and Python have the even one
        near = digits / _TEN[-power] if power < 0 else digits * _TEN[power]
        out[i] = -near if x < 0.0 else near
    return out, odd[:many]


@uncompiled(_widen)
def _widen_by_text(values: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return values.astype("U").astype(np.float64), np.zeros(0, np.int64)


def widened(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return for each 32-bit float the 64-bit one of its shortest decimal, which prints no more digits than that has.

    >>> widened(np.array([0.1, 8], np.float32)).tolist()
    [0.1, 8.0]
    """
    doubles, odd = _widen(values)
    if len(odd):
        doubles[odd] = _widen_by_text(values[odd])[0]
    return doubles


@kernel
def _write_word(word: NDArray[np.uint8], out: NDArray[np.uint8], at: int) -> int:
    out[at : at + len(word)] = word
    return at + len(word)


@kernel
def _write_any(value: float, out: NDArray[np.uint8], at: int) -> int:
    x = float(np.float32(value))
    if np.isnan(x):
        return _write_word(_NAN, out, at)
    if np.signbit(x):
        out[at] = _MINUS
        at, x = at + 1, -x
    if np.isinf(x):
        return _write_word(_INFINITY, out, at)
    digits, power = 0, 0
    if x > 0:
        digits, power = _shortest(x)
    count = _count_digits(digits)
    exponent = count - 1 + power  # of the first digit
    scientific = x > 0 and not 1e-3 <= x < 1e7
    if scientific:
        power = 1 - count
    if power >= 0:
        at = write_digits(digits * 10**power, count + power, out, at)
        out[at], out[at + 1] = _DOT, _ZERO
        at += 2
    else:
        # all digits one place further on, then those before the point moved back: no division by a power
        count = max(count, 1 - power)
        end = write_digits(digits, count, out, at + 1)
        for i in range(at, at + count + power):
            out[i] = out[i + 1]
        out[at + count + power] = _DOT
        at = end
    if scientific:
        out[at] = _UPPER_E
        at = write_int(exponent, out, at + 1)
    return at


@kernel
def write_float32(value: float, out: NDArray[np.uint8], at: int) -> int:
    """Write the shortest decimal that reads back as the same 32-bit float; return where it ends.

    From 0.001 up to 10 million the form is `12.5`, elsewhere `1.25E7`, always with a digit after the point,
    as in the benchmark's golden files. Needs 24 bytes of room.
    """
    # What most measurements are goes a short way, all in one function: to call another one takes as long as a division.
    x = abs(float(np.float32(value)))
    if not 0.5 <= x < 1e7:
        return _write_any(value, out, at)
    bits = np.float32(x).view(np.int32)
    kind = (bits >> 23) - _FIRST_EXPONENT
    places = int(_PLACES[kind])
    # A float of 24 bits times so small a power of ten is exact in 64, and so is how far the whole number next to it is away.
    short, long = x * _TEN[places - 1], x * _TEN[places]
    digits, more = int(short + 0.5), int(long + 0.5)
    off = _HALF_STEP[kind] * _TEN[places - 1] - abs(short - digits)
    if bits & _MANTISSA == 0 and short != digits:  # the next float below is half as far away
        return _write_any(value, out, at)
    if off > 0:
        places -= 1
    else:
        if off == 0 or abs(long - more) >= _HALF_STEP[kind] * _TEN[places]:
            return _write_any(value, out, at)
        digits = more
    if value < 0:
        out[at] = _MINUS
        at += 1
    whole = int(x)
    rest = digits - whole * _WHOLE_TEN[places]
    if rest == _WHOLE_TEN[places]:  # rounded up to the next whole number
        whole, rest = whole + 1, 0
    if whole < 10:
        out[at] = _ZERO + whole
        at += 1
    elif whole < 100:
        to = out[at : at + 2]
        to[0], to[1] = _PAIRS[2 * whole], _PAIRS[2 * whole + 1]
        at += 2
    else:
        at = write_digits(whole, _count_digits(whole), out, at)
    # Eight decimals, whether there are so many or not: without a loop that takes half the time.
    decimals = np.uint32(rest * _WHOLE_TEN[8 - places])
    high = decimals // _TEN_THOUSAND
    low = decimals - high * _TEN_THOUSAND
    a, c = high // _HUNDRED, low // _HUNDRED
    b, d = high - a * _HUNDRED, low - c * _HUNDRED
    to = out[at : at + 9]
    to[0] = _DOT
    to[1], to[2], to[3], to[4] = _PAIRS[2 * a], _PAIRS[2 * a + 1], _PAIRS[2 * b], _PAIRS[2 * b + 1]
    to[5], to[6], to[7], to[8] = _PAIRS[2 * c], _PAIRS[2 * c + 1], _PAIRS[2 * d], _PAIRS[2 * d + 1]
    last = max(places, 1)
    while last > 1 and to[last] == _ZERO:
        last -= 1
    return at + last + 1
