"""The decorators of all kernels: compiled where Numba is installed, plain Python where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

try:
    from numba import njit

    def kernel(function: F) -> F:
        """Compile `function` to machine code that runs without the GIL, cached on disk between runs.

        Short calls that release and take the GIL again make workers wait for each other, so the engine lets short
        activations run one at a time.
        """
        compiled: F = njit(nogil=True, cache=True)(function)
        return compiled

    def small_kernel(function: F) -> F:
        """Compile `function` for calls by other kernels, many per record; it must not make arrays, not even slices.

        A compiled call counts a reference of each array it is given, there and back. Where many small functions share a
        dozen arrays, that takes four fifths of the time, so it is left out: the arrays are the caller's throughout.
        """
        compiled: F = njit(cache=True, _nrt=False)(function)
        return compiled

    COMPILED = True
except ImportError:  # a device without Numba runs the same loops, slower

    def kernel(function: F) -> F:
        """Return `function` as it is: Numba is not installed."""
        return function

    small_kernel = kernel

    COMPILED = False
