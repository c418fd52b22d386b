"""Clocks of keys: each shows the newest time of its key's records."""

# Numba infers the types of kernels
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Any

import numpy.typing as npt

from headwater.data.jit import kernel

Array = npt.NDArray[Any]


@kernel
def run_on(times: Array, slots: Array, clocks: Array) -> None:
    """Have no time be before the clock of its key, and move that on."""
    for i in range(len(times)):
        slot = slots[i]
        clocks[slot] = times[i] = max(times[i], clocks[slot])
