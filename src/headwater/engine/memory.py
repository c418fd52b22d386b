"""How the processes of runs deal with memory, told to the C library."""

from __future__ import annotations

import ctypes

# the GNU C library's numbers
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
_MB = 2**20


def share_arenas(most: int = 2) -> bool:
    """Let all threads take memory from a few common pools; return whether the C library can.

    By default each thread of a process may get a pool of its own. A batch is made by one worker and freed by another, so the
    pools fill with holes that never fit, and a process that runs for weeks grows although nothing is kept. For programs
    that own their process, as `headwater run` does; a library has no business doing this to its user's.
    """
    return _mallopt(_M_ARENA_MAX, most)


def keep_freed(most_mb: int = 32) -> bool:
    """Keep so much freed memory for the next batch in place of giving it back; return whether the C library can.

    By default it gives back what is larger than a few hundred kilobytes, and the system clears every page again when the
    next batch asks for it: a fifth of the time of a lane, whose batches are large. As above, for processes of our own.
    """
    options = ((_M_MMAP_THRESHOLD, most_mb * _MB), (_M_TRIM_THRESHOLD, most_mb * _MB), (_M_TOP_PAD, 4 * _MB))
    return all(_mallopt(option, value) for option, value in options)


def _mallopt(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).mallopt(option, value))
    except (AttributeError, OSError, TypeError):  # another C library
        return False
