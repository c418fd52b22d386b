"""What is within a promise is what the rate and one burst allow, however it is cut."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.rate.bucket import Bucket

arrivals = st.lists(st.tuples(st.floats(0, 2), st.integers(0, 500)), max_size=40)


@given(arrivals, st.floats(1, 1000), st.floats(1, 200))
def test_never_more_than_the_rate_and_one_burst_are_within(arrivals, rate_hz, size):
    bucket, at_s, within = Bucket(rate_hz, size), 0.0, 0
    for gap_s, count in arrivals:
        at_s += gap_s
        within += bucket.take(count, at_s)
        assert within <= size + rate_hz * at_s + 1e-6
    assert within + bucket.exceeded == sum(count for _, count in arrivals)


@given(st.integers(10, 1000), st.integers(1, 100))
def test_what_comes_at_the_rate_is_all_within(rate_hz, ticks):
    bucket = Bucket(rate_hz, max(1, rate_hz / 10))
    for tick in range(1, ticks):
        bucket.take(1, tick / rate_hz)
    assert bucket.exceeded == 0


def test_room_is_what_a_take_would_have():
    bucket = Bucket(100, 10)
    assert bucket.room(0.0) == 10
    assert bucket.take(4, 0.0) == 4
    assert bucket.room(0.0) == 6
    assert bucket.room(60.0) == 10


@given(st.integers(1, 5), st.integers(10, 1000))
def test_a_batch_that_came_evenly_at_the_rate_is_within_however_long_it_took(seconds, rate_hz):
    bucket = Bucket(rate_hz, rate_hz / 10)
    assert bucket.take(seconds * rate_hz, at_s=float(seconds), since_s=0.0) == seconds * rate_hz
