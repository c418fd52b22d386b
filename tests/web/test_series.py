"""What charts over time are made of."""

from headwater.web.series import series_of


def sample(at, counts=(), marks=None, checkpoints=None):
    last = {
        "at_s": 2.0,
        "records_in": 100,
        "records_out": {"a": 40, "b": 10},
        "latency_ms": {"p50": 1.0, "p95": 2.0, "p99": 3.0},
        "latency_counts": list(counts),
        "backpressure_s": 0.5,
        "watermarks_us": marks or {},
    }
    return {
        "at": at,
        "last": last,
        "process": {"cores": 0.5, "memory_bytes": 2**20},
        "checkpoints": checkpoints,
    }


def test_rates_are_of_the_time_between_samples():
    series = series_of([sample(1000.0)])
    assert (series.in_hz, series.out_hz, series.held, series.memory_mb) == ([50.0], [25.0], [25.0], [1.0])


def test_the_heat_map_has_a_row_for_every_doubling_between_the_least_and_the_most():
    series = series_of([sample(1.0, [(1.048576, 3), (8.388608, 1)]), sample(2.0)])
    assert series.bounds_ms == [1.048576, 2.097152, 4.194304, 8.388608]
    assert series.heat == [(0, 0, 75.0), (0, 3, 25.0)]


def test_event_time_is_as_far_behind_as_the_slowest_step():
    assert series_of([sample(100.0, marks={"a": 90_000_000, "b": 95_000_000})]).lag_s == [10.0]


def test_what_a_sample_does_not_tell_is_a_gap_not_a_zero():
    made = {"complete": 2, "seconds": 0.01, "bytes": 2**20}
    series = series_of([sample(1.0), sample(2.0, checkpoints={**made, "complete": 0}), sample(3.0, checkpoints=made)])
    assert series.lag_s == [None, None, None]
    assert series.checkpoint_ms == [None, None, 10.0]
    assert series.checkpoint_kb == [None, None, 1024.0]


def test_no_history_is_no_error():
    assert series_of([]).times == []
