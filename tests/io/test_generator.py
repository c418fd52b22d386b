import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.batch import CREATED, EMITTED, Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError, InputError
from headwater.io import Generate, Items, Replay, rates

LETTERS = [{"id": letter, "x": number} for number, letter in enumerate("abcde")]


def numbered(rate, **options):
    return Generate(lambda n: {"n": n}, {"n": int}, rate, **options)


def opened(source):
    return source.open(lambda text, reason: pytest.fail(reason))


def test_records_are_due_one_by_one_and_stamped_with_that_moment(clock):
    start = clock.ns
    batch = opened(numbered(10, clock=clock)).read(limit=50, timeout_s=1)
    assert batch["n"].tolist() == [0]
    assert batch.stamps[:, CREATED].tolist() == [start + 100_000_000]
    assert clock.ns == start + 100_000_000


def test_records_that_are_due_do_not_wait_for_those_of_the_next_seconds(clock):
    asked = []
    source = Generate(lambda n: asked.append(len(n)) or {"n": n}, {"n": int}, 1000, clock=clock)
    reader, taken = opened(source), 0
    while taken < 5000:
        taken += len(reader.read(2000, 1))
        clock.ns += 9_000_000
    assert max(asked) <= 16 * 10
    clock.ns += 1_000_000_000
    reader.read(2000, 0)
    assert max(asked) >= 1000


def test_a_slow_flow_finds_all_that_fell_due_meanwhile(clock):
    reader = opened(numbered(1000, clock=clock))
    reader.read(50, 1)
    clock.ns += 2_000_000_000
    sizes = [len(reader.read(500, 0)) for _ in range(5)]
    assert sizes == [500, 500, 500, 500, 0]


def test_a_backlog_keeps_the_moments_the_records_were_due(clock):
    reader, start = opened(numbered(1000, clock=clock)), clock.ns
    reader.read(1, 1)
    clock.ns = start + 5_000_000_000
    batch = reader.read(10_000, 0)
    assert (np.diff(batch.stamps[:, CREATED]) == 1_000_000).all()
    assert (batch.stamps[:, EMITTED] == clock.ns).all()


def test_nothing_due_in_time_gives_no_records_and_waits_no_longer(clock):
    reader, start = opened(numbered(1, clock=clock)), clock.ns
    assert len(reader.read(50, timeout_s=0.25)) == 0
    assert clock.ns == start + 250_000_000


def test_records_are_gathered_for_a_tick(clock):
    reader = opened(numbered(100_000, clock=clock, tick="2 ms"))
    assert [len(reader.read(1000, 1)) for _ in range(3)] == [200, 200, 200]


def test_a_backlog_of_a_full_batch_is_not_made_to_wait(clock):
    reader = opened(numbered(100_000, clock=clock, tick="2 ms"))
    assert [len(reader.read(50, 1)) for _ in range(4)] == [50, 50, 50, 50]
    assert clock.slept == [0.002]


def test_a_count_ends_the_source(clock):
    reader = opened(numbered(1000, count=70, clock=clock))
    assert [len(reader.read(50, 1)) for _ in range(2)] == [1, 1]
    clock.ns += 10**10
    assert [len(batch) if (batch := reader.read(50, 1)) else None for _ in range(3)] == [50, 18, None]


def test_a_duration_ends_the_source_after_what_was_due_in_it(clock):
    reader = opened(numbered(rates.step([("0 s", 10), ("2 s", 100)]), duration="3 s", clock=clock))
    total = 0
    while (batch := reader.read(50, 1)) is not None:
        total += len(batch)
    assert total == 120


@given(st.lists(st.tuples(st.integers(1, 700), st.floats(0, 0.2), st.floats(0, 0.5)), max_size=40))
def test_every_record_is_handed_out_once_in_order(make_clock, reads):
    clock = make_clock()
    reader = opened(numbered(rates.burst(500, 50_000, every="1 s", length="100 ms"), clock=clock))
    seen = []
    for limit, timeout_s, pause_s in reads:
        seen += reader.read(limit, timeout_s)["n"].tolist()
        clock.ns += round(pause_s * 1e9)
    assert seen == list(range(len(seen)))
    assert reader.position == len(seen)


def test_the_rate_and_the_numbers_go_on_after_a_restart(clock):
    source = numbered(rates.step([("0 s", 10), ("1 s", 1000)]), clock=clock)
    first = source.open(print)
    while first.position < 10:
        first.read(1, 1)
    again = source.open(print, position=first.position)
    start = clock.ns
    assert again.read(50, 1)["n"].tolist() == [10]
    assert clock.ns - start == pytest.approx(1_000_000, abs=1000)


def test_a_time_column_gets_the_moment_the_record_was_due(clock):
    source = Generate(lambda n: {"n": n}, {"n": int, "t": "time"}, 10, time="t", clock=clock)
    batch = opened(source).read(1, 1)
    assert batch["t"].tolist() == [clock.ns // 1000]


def test_a_function_of_one_number_is_told_that_it_gets_many(clock):
    source = Generate(lambda n: {"k": ["a", "b"][n % 2]}, {"k": str}, 10, clock=clock)
    with pytest.raises(TypeError, match=r"only .*; make gets an array of record numbers, not one of them"):
        opened(source).read(10, 1)


def test_columns_of_the_wrong_length_are_an_error(clock):
    source = Generate(lambda n: {"n": n[:3]}, {"n": int}, 10, clock=clock)
    with pytest.raises(InputError, match="returned columns of 3"):
        opened(source).read(50, 1)


def test_a_replay_starts_over(clock):
    reader = opened(Replay(Items(LETTERS), 1000, count=12, clock=clock, tick="1 s"))
    batch = reader.read(50, 1)
    assert "".join(row["id"] for row in batch.rows()) == "abcdeabcdeab"


def test_a_replay_without_loop_ends_after_its_last_record(clock):
    reader = opened(Replay(Items(LETTERS), 1000, loop=False, clock=clock, tick="1 s"))
    assert reader.read(50, 1)["x"].tolist() == [0, 1, 2, 3, 4]
    assert reader.read(50, 1) is None


@given(st.integers(1, 40_000), st.lists(st.integers(1, 30_000), min_size=1, max_size=6))
def test_a_replay_of_any_length_wraps_exactly(make_clock, length, limits):
    clock = make_clock()
    batch = Batch.of({"n": np.arange(length)}, Schema.of({"n": int}))
    reader = opened(Replay(batch, 1e6, clock=clock))
    reader.read(1, 1)
    clock.ns += 10**10
    at = 1
    for limit in limits:
        assert (reader.read(limit, 0)["n"] == np.arange(at, at + limit) % length).all()
        at += limit


def test_a_replay_of_nothing_says_so(clock):
    with pytest.raises(InputError, match="nothing to replay"):
        Replay(Items([], {"x": int}), 10, clock=clock).open(print)


def test_a_replay_rejects_what_its_source_rejects(clock, rejected):
    reader = Replay(Items([{"x": 1}, {"x": "?"}], {"x": int}), 10, loop=False, clock=clock).open(rejected)
    clock.ns += 10**9
    assert reader.read(50, 1).rows() == [{"x": 1}]
    assert len(rejected) == 1


def test_what_a_replay_rejects_is_told_once_however_often_it_goes_on(clock, rejected):
    replay = Replay(Items([{"x": 1}, {"x": "?"}, {"x": 2}], {"x": int}), 10, clock=clock)
    first = replay.open(rejected)
    assert first.read(limit=1, timeout_s=60).rows() == [{"x": 1}]
    assert replay.open(rejected, first.position).read(limit=1, timeout_s=60).rows() == [{"x": 2}]
    assert len(rejected) == 1
    replay.open(rejected, 0)  # a run that was stopped before its first record has told nobody
    assert len(rejected) == 2


def test_a_clock_that_starts_anew_charges_nobody_for_the_time_before(clock):
    reader = opened(numbered(10, clock=clock))
    assert reader.read(1, 1).rows() == [{"n": 0}]
    clock.ns += 60 * 10**9
    reader.start_anew()
    start = clock.ns
    batch = reader.read(50, 1)
    assert batch.rows() == [{"n": 1}]
    assert batch.stamps[0, CREATED] == start + 100_000_000 == clock.ns


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: numbered(10, time="when"), "there is no column 'when'"),
        (lambda: numbered(10, time="n"), "'n' is int"),
        (lambda: numbered(10, count=-1), "got -1"),
    ],
)
def test_a_source_described_wrongly_is_refused(make, says):
    with pytest.raises(FlowError, match=says):
        make()


def test_a_position_of_another_source_is_refused():
    with pytest.raises(InputError, match="number of records"):
        numbered(10).open(print, position=[1, 2])
