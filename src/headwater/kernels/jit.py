"""The one decorator of all kernels: compiled where Numba is installed, plain Python where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

try:
    from numba import njit

    def kernel(function: F) -> F:
        """Compile `function` to machine code that runs without the GIL, cached on disk between runs."""
        compiled: F = njit(nogil=True, cache=True)(function)
        return compiled

    COMPILED = True
except ImportError:  # a device without Numba runs the same loops, slower

    def kernel(function: F) -> F:
        """Return `function` as it is: Numba is not installed."""
        return function

    COMPILED = False
