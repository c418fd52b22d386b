"""The numbers by which Spark knows buckets of keys: such that it spreads them evenly over as many partitions.

Spark hashes what rows are grouped by. Of buckets that are called 0 and 1, it puts both into the second of two partitions:
one task has all the work, and the other processor none.
"""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import count

_ALL = 0xFFFFFFFF


class Numbers:
    """Gives out numbers, each one once."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._untried = count()
        self._free: dict[int, deque[int]] = defaultdict(deque)

    def of_partition(self, partition: int) -> int:
        """Return the next number that Spark puts into a partition; of those beyond the last, the first is the next.

        >>> numbers = Numbers(2)
        >>> [numbers.of_partition(partition) for partition in (0, 1, 0, 1)]
        [2, 0, 4, 1]
        """
        free = self._free[partition % self._partitions]
        while not free:
            number = next(self._untried)
            self._free[hashed(number) % self._partitions].append(number)
        return free.popleft()


def hashed(number: int) -> int:
    """Return what Spark's function `hash` makes of a whole number of 32 bits: Murmur3, seeded with 42.

    >>> hashed(0), hashed(1)
    (933211791, -559580957)
    """
    mixed = 42 ^ (_turned(number * 0xCC9E2D51 & _ALL, 15) * 0x1B873593 & _ALL)
    mixed = (_turned(mixed, 13) * 5 + 0xE6546B64 & _ALL) ^ 4  # bytes of the number
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _ALL
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _ALL
    mixed ^= mixed >> 16
    return mixed - 2**32 if mixed >= 2**31 else mixed


def _turned(number: int, bits: int) -> int:
    return number << bits & _ALL | number >> 32 - bits
