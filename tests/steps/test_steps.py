"""Ready-made steps over columns that a user named, from a list to a list."""

import numpy as np
import pytest

from headwater import Flow, engine, io, steps

PUMPS = [{"pump": "ab"[i % 2], "bar": None if i == 4 else float(i), "site": f"s{i % 3}"} for i in range(12)]


def after(step, out, rows=PUMPS):
    flow, sink = Flow("steps"), io.Collect()
    read = flow.read("read", io.Items(rows, {"pump": str, "bar": float, "site": str}))
    read.key_by("pump").scan("step", step, out=out).write("write", sink)
    engine.run(flow)
    return sink.records


def test_a_gap_is_filled_with_the_mean_of_the_pumps_own_last_values():
    filled = after(steps.Interpolate(2, "bar"), {"pump": str, "bar": "float32"})
    assert [row["bar"] for row in filled] == [0, 1, 2, 3, 1, *range(5, 12)]


def test_readings_are_smoothed_towards_what_the_pump_does():
    level = [{"pump": "a", "bar": 5.0 + (-1) ** i, "site": "s"} for i in range(40)]
    smooth = [row["bar"] for row in after(steps.Kalman("bar"), {"pump": str, "bar": "float32"}, level)]
    assert np.std(smooth[20:]) < 0.7 * np.std([row["bar"] for row in level[20:]])


def test_a_line_is_prolonged_into_columns_of_its_own():
    rising = [{"pump": "a", "bar": 2.0 * i, "site": "s"} for i in range(6)]
    out = {"pump": str, "bar": float, "next_1": "float32", "next_2": "float32"}
    ahead = after(steps.SlidingRegression("bar", window=3, horizon=2), out, rising)
    assert [(row["bar"], row["next_1"], row["next_2"]) for row in ahead] == [(6, 8, 10), (8, 10, 12), (10, 12, 14)]


def test_means_of_blocks_take_the_columns_place_or_one_of_their_own():
    whole = [{**row, "bar": 4.0 if row["bar"] is None else row["bar"]} for row in PUMPS]
    means = after(steps.BlockAverage(3, "bar"), {"pump": str, "bar": "float32"}, whole)
    assert [row["bar"] for row in means] == [2, 3, 8, 9]
    apart = after(steps.BlockAverage(3, "bar", into="mean"), {"pump": str, "mean": "float32"}, whole)
    assert [row["mean"] for row in apart] == [2, 3, 8, 9]


def test_distinct_texts_are_counted_within_what_the_sketch_promises():
    many = [{"pump": "a", "bar": 0.0, "site": f"site {i % 10_000}"} for i in range(20_000)]
    counted = after(steps.DistinctCount("site", bits=7), {"pump": str, "distinct": int}, many)
    assert counted[-1]["distinct"] == pytest.approx(10_000, rel=0.25)


def test_the_second_moment_is_large_where_one_value_makes_up_the_stream():
    def moment(values):
        rows = [{"pump": "a", "bar": float(value), "site": "s"} for value in values]
        return after(steps.SecondMoment("bar"), {"pump": str, "moment": "float32"}, rows)[-1]["moment"]

    assert moment([7] * 100) > 10 * moment(range(100))
