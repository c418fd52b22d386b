"""Numbers as people read them: three digits that count, and a unit."""

from __future__ import annotations

_LARGE = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def count(value: float) -> str:
    """Write how many there are.

    >>> [count(v) for v in (0, 7, 999, 1234, 45_600, 1_280_000)]
    ['0', '7', '999', '1.23 k', '45.6 k', '1.28 M']
    """
    for size, sign in _LARGE:
        if value >= size * 0.9995:
            return f"{_digits(value / size)} {sign}"
    return f"{value:.0f}" if value == int(value) or value >= 100 else _digits(value)


def rate(per_s: float) -> str:
    """Write records per second.

    >>> rate(0.25), rate(45_600)
    ('0.25/s', '45.6 k/s')
    """
    return f"{count(per_s)}/s"


def milliseconds(ms: float | None) -> str:
    """Write a duration; a dash for one that is not known.

    >>> [milliseconds(v) for v in (0, 0.0042, 1.5, 250, 2_500, 90_000, 7_200_000, None)]
    ['0', '4.2 µs', '1.5 ms', '250 ms', '2.5 s', '1 min 30 s', '2 h 0 min', '–']
    """
    if ms is None:
        return "–"
    if ms == 0:
        return "0"
    if ms < 1:
        return f"{_digits(ms * 1000)} µs"
    if ms < 1000:
        return f"{_digits(ms)} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{_digits(seconds)} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def size(nbytes: float) -> str:
    """Write how large something is.

    >>> size(0), size(900), size(1536), size(3 * 2**20)
    ('0 B', '900 B', '1.5 KiB', '3 MiB')
    """
    for unit, sign in _BYTES:
        if nbytes >= unit:
            return f"{_digits(nbytes / unit)} {sign}"
    return f"{nbytes:.0f} B"


def clipped(text: str, most: int) -> str:
    """Return the beginning of a text that is too long for a page, and how long it is.

    >>> clipped("short", 8), clipped("a" * 2000, 4)
    ('short', 'aaaa… (2,000 signs)')
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} signs)"


def percent(share: float) -> str:
    """Write a share; one below 1 is never written as 100 %.

    >>> percent(0.0002), percent(0.004), percent(0.43), percent(0.9984), percent(0.99999), percent(1)
    ('< 0.1 %', '0.4 %', '43 %', '99.8 %', '99.9 %', '100 %')
    """
    if 0.99 < share < 1:
        return f"{min(share * 100, 99.9):.1f} %"
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{share * 100:.1f} %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def _digits(value: float) -> str:
    digits = f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
