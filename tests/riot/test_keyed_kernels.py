"""The kernels with state per key, each against its plain twin, over batches of any size."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from headwater.steps.average import block_average
from headwater.steps.interpolate import interpolate
from headwater.steps.kalman import kalman
from headwater.steps.moment import second_moment
from headwater.steps.regression import sliding_regression
from headwater_bench.riot.kernels.pieces import Pieces

KEYS = 4
values = st.floats(-1e6, 1e6, width=32)
records = st.lists(st.tuples(st.integers(0, KEYS - 1), values), max_size=80)
close = {"rel": 1e-6, "abs": 1e-6}


def batches(rows, draw):
    """Cut rows into batches of drawn sizes; a kernel must not notice where."""
    while rows:
        size = draw(st.integers(1, len(rows)))
        yield [list(column) for column in zip(*rows[:size], strict=True)]
        rows = rows[size:]


@given(st.lists(st.tuples(st.integers(-1, KEYS - 1), values, st.booleans()), max_size=80), st.data())
def test_interpolation_fills_a_gap_with_the_mean_of_the_last_valid_values(rows, data):
    plain, history, counts = reference.Interpolation(5), np.zeros((KEYS, 5), "f4"), np.zeros(KEYS, "i8")
    for slots, batch, valid in batches(rows, data.draw):
        out = np.empty(len(slots), "f4")
        interpolate(np.array(slots), np.array(batch, "f4"), np.array(valid), history, counts, out)
        for slot, value, there, got in zip(slots, batch, valid, out.tolist(), strict=True):
            expected = plain.step(slot, value if there else None) if slot >= 0 else 0.0
            assert got == pytest.approx(expected, rel=1e-6, abs=0.5)  # sums of opposite signs cancel


@given(records, st.data())
def test_kalman_filter_follows_its_equations_in_32_bits(rows, data):
    plain = reference.Kalman(0.125, 0.32, 30)
    x, p = np.zeros(KEYS, "f4"), np.full(KEYS, 30, "f4")
    for slots, batch in batches(rows, data.draw):
        out = np.empty(len(slots), "f4")
        kalman(np.array(slots), np.array(batch, "f4"), x, p, 0.125, 0.32, out)
        expected = [plain.step(slot, value) for slot, value in zip(slots, batch, strict=True)]
        scale = max(map(abs, batch))
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6 * scale)


@given(records, st.data())
def test_sliding_regression_predicts_as_exact_least_squares_does(rows, data):
    plain = reference.SlidingRegression(4, 3)
    history, counts = np.zeros((KEYS, 4), "f4"), np.zeros(KEYS, "i8")
    for slots, batch in batches(rows, data.draw):
        at, out = np.empty(len(slots), "i8"), np.empty((len(slots), 3), "f4")
        made = sliding_regression(np.array(slots), np.array(batch, "f4"), history, counts, at, out)
        expected = {i: plain.step(slot, v) for i, (slot, v) in enumerate(zip(slots, batch, strict=True))}
        expected = {i: line for i, line in expected.items() if line is not None}
        assert at[:made].tolist() == list(expected)
        for got, line in zip(out[:made], expected.values(), strict=True):
            np.testing.assert_allclose(got, line, rtol=1e-6, atol=1e-2)


def test_a_line_far_down_the_stream_is_predicted_as_well_as_at_its_start():
    history, counts = np.zeros((1, 10), "f4"), np.array([10**12])
    values = np.arange(20, dtype="f4") * np.float32(0.5)
    at, out = np.empty(20, "i8"), np.empty((20, 10), "f4")
    sliding_regression(np.zeros(20, "i8"), values, history, counts, at, out)
    np.testing.assert_allclose(out[19], 9.5 + 0.5 * np.arange(1, 11), rtol=1e-6)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12).map(float)), max_size=80), st.data())
def test_second_moment_agrees_until_a_random_item_must_go(rows, data):
    plain = reference.SecondMoment(10)
    items, counts = np.zeros((2, 10), "f4"), np.zeros((2, 10), "i8")
    seen, used = np.zeros(2, "i8"), np.zeros(2, "i8")
    for slots, batch in batches(rows, data.draw):
        out = np.empty(len(slots), "f4")
        second_moment(np.array(slots), np.array(batch, "f4"), items, counts, seen, used, 1, out)
        for slot, value, got in zip(slots, batch, out.tolist(), strict=True):
            expected = plain.step(slot, value)
            if expected is not None:
                assert got == pytest.approx(expected, **close)
    for slot in range(2):
        distinct = len(plain.counts[slot])
        assert used[slot] == min(distinct, 10)
        assert seen[slot] == plain.counts[slot].total()
        if distinct <= 10:
            assert dict(zip(items[slot, : used[slot]].tolist(), counts[slot].tolist(), strict=False)) == dict(
                plain.counts[slot]
            )


def test_every_place_of_the_second_moment_is_replaced_sooner_or_later():
    items, counts = np.zeros((1, 10), "f4"), np.zeros((1, 10), "i8")
    out, state = np.empty(500, "f4"), (np.zeros(1, "i8"), np.zeros(1, "i8"))
    second_moment(np.zeros(500, "i8"), np.arange(500, dtype="f4"), items, counts, *state, 1, out)
    assert items.min() >= 10
    assert counts.tolist() == [[1] * 10]
    assert out[499] == 500  # ten items, each seen once: 500 × 10 / 10


@given(records, st.integers(1, 5), st.data())
def test_block_averages_come_with_the_last_record_of_each_block(rows, size, data):
    plain, totals, counts = reference.BlockAverage(size), np.zeros(KEYS, "f4"), np.zeros(KEYS, "i8")
    for slots, batch in batches(rows, data.draw):
        at, out = np.empty(len(slots), "i8"), np.empty(len(slots), "f4")
        made = block_average(np.array(slots), np.array(batch, "f4"), totals, counts, size, at, out)
        means = [plain.step(slot, value) for slot, value in zip(slots, batch, strict=True)]
        assert at[:made].tolist() == [i for i, mean in enumerate(means) if mean is not None]
        np.testing.assert_allclose(out[:made], [mean for mean in means if mean is not None], rtol=1e-6, atol=0.5)


@given(st.lists(st.tuples(st.integers(-3, 6), st.integers(0, 2), values), max_size=120), st.data())
def test_messages_are_put_together_however_their_pieces_arrive(rows, data):
    plain, pieces = reference.Join(3), Pieces(3)
    for ids, fields, batch in batches(rows, data.draw):
        at, out = pieces.add(np.array(ids), np.array(fields), np.array(batch, "f4"))
        whole = [plain.step(*row) for row in zip(ids, fields, batch, strict=True)]
        assert at.tolist() == [i for i, message in enumerate(whole) if message is not None]
        assert out.tolist() == [message for message in whole if message is not None]
        if data.draw(st.booleans()):  # moved elsewhere in the middle
            moved = Pieces(3)
            moved.restore(*pieces.open())
            pieces = moved
    assert len(pieces) == len(plain.open)


def test_joining_ten_thousand_open_messages_and_closing_them_leaves_nothing():
    pieces, ids = Pieces(2), np.random.default_rng(1).permutation(10_000) - 5000
    for part in np.array_split(ids, 37):
        assert len(pieces.add(part, np.zeros(len(part), "i8"), part.astype("f4"))[0]) == 0
    assert len(pieces) == 10_000
    found = [pieces.add(part, np.ones(len(part), "i8"), -part.astype("f4"))[1] for part in np.array_split(ids, 11)]
    np.testing.assert_array_equal(np.concatenate(found), np.stack([ids, -ids], axis=1))
    assert len(pieces) == 0
