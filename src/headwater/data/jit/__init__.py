"""Kernels: loops over arrays that run as machine code where Numba is installed, and as plain Python where it is not.

`kernel` is what the rest of the package uses. A kernel is compiled once per machine for each `signature` it is called with,
by a process of its own (`service` here, `compiler` there), into the user's `cache`. What is in the cache is loaded by `link`
with the few functions of Numba's C `runtime` that machine code calls: neither Numba nor LLVM is imported for that, which
would take half a second and 110 MB. What `link` cannot load is kept by `numba_cache`, and loaded by Numba.
`used` remembers which kernels some work needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from headwater.data.jit.kernel import COMPILED, Kernel, answering_at_once, uncompiled_answers

__all__ = [
    "COMPILED",
    "Kernel",
    "answering_at_once",
    "being_compiled",
    "kernel",
    "small_kernel",
    "uncompiled",
    "uncompiled_answers",
    "wait_until_compiled",
]

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile `function` to machine code that runs without the GIL; without Numba, leave it as it is.

    Short calls that release and take the GIL again make workers wait for each other, so the engine lets short
    activations run one at a time.
    """
    return cast(F, Kernel(function)) if COMPILED else function


def small_kernel(function: F) -> F:
    """Compile `function` for calls by other kernels, many per record; it must not make arrays, not even slices.

    A compiled call counts a reference of each array it is given, there and back. Where many small functions share a
    dozen arrays, that takes four fifths of the time, so it is left out: the arrays are the caller's throughout.
    """
    return cast(F, Kernel(function, small=True)) if COMPILED else function


def uncompiled(form_of: F) -> Callable[[F], F]:
    """Have a kernel, and those that call it, run as another function while they are not compiled: one made for NumPy.

    It must give the same bits, since nobody knows which records come before the compiler is done.
    """

    def register(function: F) -> F:
        if isinstance(form_of, Kernel):
            form_of.stand_in = function
        return function

    return register


def being_compiled() -> int:
    """Return how many kernels this process has asked for that are not compiled yet."""
    from headwater.data.jit import service

    return service.waiting()


def wait_until_compiled() -> None:
    """Wait until all kernels that were called so far are compiled: before something is timed."""
    from headwater.data.jit import service

    service.wait_until_compiled()
