"""Keeps a long-running process small."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # the GNU C library's number for it


def share_arenas(most: int = 2) -> bool:
    """Let all threads take memory from a few common pools; return whether the C library can.

    By default each thread of a process may get a pool of its own. A batch is made by one worker and freed by another, so the
    pools fill with holes that never fit, and a process that runs for weeks grows although nothing is kept. For programs
    that own their process, as `headwater run` does; a library has no business doing this to its user's.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, most))
    except (AttributeError, OSError, TypeError):  # another C library
        return False
