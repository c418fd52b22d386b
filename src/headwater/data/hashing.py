"""64-bit hashes of int, float and text columns: the same value on every run and every machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import COMPILED, kernel, uncompiled

F = TypeVar("F", bound=Callable[..., Any])

# Three odd constants without structure; the last two are those of the SplitMix64 generator's finaliser.
_WORD = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_U8, _U16, _U24, _U32 = np.uint64(8), np.uint64(16), np.uint64(24), np.uint64(32)
_U40, _U48, _U56 = np.uint64(40), np.uint64(48), np.uint64(56)
_U1, _U27, _U30, _U31 = np.uint64(1), np.uint64(27), np.uint64(30), np.uint64(31)


class TextColumn(Protocol):
    """A text column in Arrow's layout: text i is `data[offsets[i]:offsets[i + 1]]`, as UTF-8."""

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes of all texts, one after the other."""

    @property
    def offsets(self) -> NDArray[np.int32]:
        """Where each text starts; one more entry than there are texts."""


class TextArrays(NamedTuple):
    """The plainest text column: just its two arrays."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int32]


Column = NDArray[Any] | TextColumn


def _wrapping(function: F) -> F:
    # Hashes overflow on purpose. Compiled code does so silently; NumPy's scalars would warn at each step.
    return function if COMPILED else np.errstate(over="ignore")(function)


@_wrapping
@kernel
def mix(h: np.uint64) -> np.uint64:
    """Spread every bit of a number over all of them; a one-to-one map."""
    h = (h ^ (h >> _U30)) * _MIX_1
    h = (h ^ (h >> _U27)) * _MIX_2
    return h ^ (h >> _U31)


@_wrapping
@kernel
def hash_int(value: int, seed: np.uint64) -> np.uint64:
    """Hash one 64-bit integer."""
    return mix((np.uint64(value) ^ seed) + _WORD)


@_wrapping
@kernel
def hash_bytes(data: NDArray[np.uint8], start: int, stop: int, seed: np.uint64) -> np.uint64:
    """Hash the bytes `data[start:stop]`, eight at a time."""
    h = seed ^ (np.uint64(stop - start) * _WORD)
    at, whole = np.uint64(start), np.uint64(start + ((stop - start) & ~7))
    while at < whole:
        word = (
            np.uint64(data[at])
            | (np.uint64(data[at + np.uint64(1)]) << _U8)
            | (np.uint64(data[at + np.uint64(2)]) << _U16)
            | (np.uint64(data[at + np.uint64(3)]) << _U24)
            | (np.uint64(data[at + np.uint64(4)]) << _U32)
            | (np.uint64(data[at + np.uint64(5)]) << _U40)
            | (np.uint64(data[at + np.uint64(6)]) << _U48)
            | (np.uint64(data[at + np.uint64(7)]) << _U56)
        )
        h = (h ^ word) * _MIX_1
        h ^= h >> _U32
        at += _U8
    word = np.uint64(0)
    end = np.uint64(stop)
    shift = np.uint64(0)
    while at < end:
        word |= np.uint64(data[at]) << shift
        shift += _U8
        at += _U1
    return mix(h ^ word)


_ALL = 2**64 - 1


@uncompiled(mix)
def _mix(h: np.uint64) -> np.uint64:
    return np.uint64(_mix_int(int(h)))


@uncompiled(hash_int)
def _hash_int(value: int, seed: np.uint64) -> np.uint64:
    return np.uint64(_mix_int((int(value) & _ALL ^ int(seed)) + int(_WORD) & _ALL))


@uncompiled(hash_bytes)
def _hash_bytes(data: NDArray[np.uint8], start: int, stop: int, seed: np.uint64) -> np.uint64:
    content = data[start:stop].tobytes()
    h = int(seed) ^ (len(content) * int(_WORD) & _ALL)
    whole = len(content) & ~7
    for at in range(0, whole, 8):
        h = (h ^ int.from_bytes(content[at : at + 8], "little")) * int(_MIX_1) & _ALL
        h ^= h >> 32
    return np.uint64(_mix_int(h ^ int.from_bytes(content[whole:], "little")))


def _mix_int(h: int) -> int:
    h = (h ^ (h >> 30)) * int(_MIX_1) & _ALL
    h = (h ^ (h >> 27)) * int(_MIX_2) & _ALL
    return h ^ (h >> 31)


@kernel
def place_of(h: np.uint64, places: int) -> int:
    """Map a hash to one of so many places."""
    return np.int64(h % np.uint64(places))  # type: ignore[return-value]  # a compiled int() would stay unsigned


@kernel
def _fold_ints(values: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    for i in range(len(values)):
        hashes[i] = hash_int(values[i], hashes[i])


@kernel
def _fold_texts(data: NDArray[np.uint8], offsets: NDArray[np.int32], hashes: NDArray[np.uint64]) -> None:
    for i in range(len(hashes)):
        hashes[i] = hash_bytes(data, offsets[i], offsets[i + 1], hashes[i])


def as_bits(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return numbers as int64 such that equal numbers have equal bits.

    Floats keep their bit pattern, except that -0.0 becomes 0.0 and every NaN the same NaN.
    """
    if values.dtype.kind != "f":
        return np.ascontiguousarray(values, dtype=np.int64)
    plain = values.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    plain[np.isnan(plain)] = np.nan
    return plain.view(np.int64)


def partition_hash(columns: Sequence[Column]) -> NDArray[np.int64]:
    """Hash each row of the key `columns` to a number >= 0 that tells which instance the row belongs to.

    >>> partition_hash([np.array([70, 80, 70])]) % 4
    array([3, 1, 3])
    """
    first = columns[0]
    count = len(first) if isinstance(first, np.ndarray) else len(first.offsets) - 1
    hashes = np.zeros(count, np.uint64)
    for column in columns:
        if isinstance(column, np.ndarray):
            _fold_ints(as_bits(column), hashes)
        else:
            _fold_texts(column.data, column.offsets, hashes)
    return (hashes >> _U1).view(np.int64)
