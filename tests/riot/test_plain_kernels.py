"""Kernels answer uncompiled until they are compiled: both must give the same bits, or results would depend on timing."""

import numpy as np
import pytest

from headwater.data.jit import COMPILED
from headwater.steps.average import block_average
from headwater.steps.interpolate import fill_rows, interpolate
from headwater.steps.kalman import kalman
from headwater.steps.moment import second_moment
from headwater.steps.regression import sliding_regression
from headwater_bench.riot.kernels.wide import kalman_rows, moment_rows, regression_rows

N, KEYS, KINDS, WINDOW = 500, 5, 3, 6
slots = np.random.default_rng(1).integers(0, KEYS, N)
rows = np.random.default_rng(2).normal(20, 15, (KINDS, N)).astype(np.float32)
gaps = np.where(np.random.default_rng(3).random((KINDS, N)) < 0.2, np.float32(np.nan), rows)
f4, i8 = "float32", "int64"

CASES = {
    kalman: lambda: (rows[0], np.zeros(KEYS, f4), np.full(KEYS, 30, f4), 0.125, 0.32, np.zeros(N, f4)),
    kalman_rows: lambda: (rows.copy(), np.zeros((KEYS, KINDS), f4), np.full(KEYS, 30, f4), 0.125, 0.32),
    interpolate: lambda: (gaps[0], ~np.isnan(gaps[0]), np.zeros((KEYS, WINDOW), f4), np.zeros(KEYS, i8), np.zeros(N, f4)),
    fill_rows: lambda: (gaps.copy(), np.zeros((KEYS, KINDS, WINDOW), f4), np.zeros((KEYS, KINDS), i8)),
    sliding_regression: lambda: (
        rows[0], np.zeros((KEYS, WINDOW), f4), np.zeros(KEYS, i8), np.zeros(N, i8), np.zeros((N, 4), f4),
    ),
    regression_rows: lambda: (
        rows.copy(), np.zeros((KEYS, KINDS, WINDOW), f4), np.zeros(KEYS, i8), np.zeros(N, i8), np.zeros((KINDS, N, 4), f4),
    ),
    second_moment: lambda: (
        rows[0].round(), np.zeros((KEYS, 10), f4), np.zeros((KEYS, 10), i8), np.zeros(KEYS, i8), np.zeros(KEYS, i8), 1,
        np.zeros(N, f4),
    ),
    moment_rows: lambda: (
        rows.round(), np.zeros((KEYS, KINDS, 10), f4), np.zeros((KEYS, KINDS, 10), i8), np.zeros(KEYS, i8),
        np.zeros((KEYS, KINDS), i8), 1, np.zeros((KINDS, N), f4),
    ),
    block_average: lambda: (rows[0], np.zeros(KEYS, f4), np.zeros(KEYS, i8), 7, np.zeros(N, i8), np.zeros(N, f4)),
}  # fmt: skip


@pytest.mark.skipif(not COMPILED, reason="there is nothing to compare without Numba")
@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_a_kernel_gives_the_same_bits_compiled_and_not(kernel):
    compiled, plain = CASES[kernel](), CASES[kernel]()
    assert kernel(slots, *compiled) == kernel.plain(slots, *plain)
    for one, other in zip(compiled, plain, strict=True):
        if isinstance(one, np.ndarray):
            assert one.tobytes() == other.tobytes()
