"""A flow gives the same in two lanes as in one: the same records, in the same order for each key."""

import os
import sqlite3
import threading
from random import Random

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alike import as_multiset, by_key, order_matters, straight
from headwater import Batch, Count, Flow, Session, Sliding, Tumbling, agg, col, engine, io
from headwater.data.jit import service
from headwater.engine.lanes.layout import laid_out
from headwater.errors import FlowError, InputError, RunError
from headwater.flow.steps import Input, Write
from headwater.operators import Operator
from headwater.steps import BlockAverage
from properties import examples
from strategies import build, flows, records

READINGS = {"n": int, "key": str, "x": float, "at": "time"}


def readings(count=3000, keys=7):
    rows = ({"n": n, "key": f"k{n * n % keys}", "x": n * 0.5, "at": n * 10_000} for n in range(count))
    return io.Items(list(rows), READINGS)


def both(make, **options):
    """Run the flow that `make(*sinks)` builds in one lane and in two; return what each sink got, and the second report."""
    found = []
    for lanes in (1, 2):
        sinks = [io.Collect() for _ in range(make.__code__.co_argcount - 1)]
        flow = Flow("both")
        make(flow, *sinks)
        report = engine.run(flow, lanes=lanes, chunk=100, **options)
        found.append([sink.records for sink in sinks])
    assert report.extra.get("lanes") == 2
    assert report.left == 0
    return *zip(*found, strict=True), report


def numbered(state, record):
    seen = (state or 0) + 1
    return seen, {**record, "n": seen}


def test_maps_and_filters_keep_the_order_of_the_source():
    def make(flow, out):
        stream = flow.read("r", readings()).filter("some", col.n % 3 > 0).map("one", lambda r: {**r, "x": r["x"] + 1})
        stream.with_columns("two", x=col.x * 2).write("w", out)

    (one, two), report = both(make)
    assert two == one
    assert report.last.steps["one"].records_in == 2000
    assert report.last.steps["one"].instances == 2


def test_a_partitioned_pattern_goes_by_the_time_of_each_key():
    seconds = [("other", 9, 93), *((f"k{j}", 0, 90) for j in range(8)), *((f"k{j}", 1, 108 + j) for j in range(8))]
    rows = [{"key": key, "n": n, "x": 0.0, "at": at * 1_000_000} for key, n, at in seconds]

    def make(flow, out):
        flow.read("r", io.Items(rows, READINGS)).event_time("clock", "at", lateness="5 s")
        pattern = "every e1=clock[n == 0] -> e2=clock[n == 1] within 20 sec select e1.key as key"
        flow.query("rise", f"partition with (key of clock) begin from {pattern} end").write("w", out)

    (one, two), _ = both(make)
    assert sorted(row["key"] for row in two) == sorted(row["key"] for row in one) == ["k0", "k1", "k2"]


@pytest.mark.parametrize("seed", range(4))
def test_a_join_has_the_pairs_of_all_records_that_are_not_late_by_their_own_stream(seed):
    draw, within, lateness = Random(seed), 2_000_000, 5_000_000
    times = [100_000 * n - draw.choice([0, 0, 2, 6, 9]) * 1_000_000 + 10_000_000 for n in range(300)]
    rows = [{"n": n, "key": f"k{draw.randint(0, 3)}", "x": 0.0, "at": at} for n, at in enumerate(times)]

    def run(**options):
        flow, out, late, late_right = Flow("pairs"), io.Collect(), io.Collect(), io.Collect()
        timed = flow.read("r", io.Items(rows, READINGS)).event_time("clock", "at", lateness="5 s")
        left, right = timed.split("parity", col.n % 2 == 0)
        pairs = left.key_by("key").join(
            "pairs", right.select("right", "key", "at", m=col.n).key_by("key"), within="2 s"
        )
        for stream, sink in ((pairs, out), (pairs.late, late), (pairs.side("late right"), late_right)):
            stream.write(f"w{len(flow.steps)}", sink)
        engine.run(flow, **options)
        return (
            sorted((row["n"], row["m"]) for row in out.records),
            {row["n"] for row in late.records} | {row["m"] for row in late_right.records},
        )

    newest, late = -lateness, set()
    for row in rows:
        if row["at"] + within < newest - lateness:
            late.add(row["n"])
        newest = max(newest, row["at"])
    sides = [[row for row in rows if row["n"] % 2 == side and row["n"] not in late] for side in (0, 1)]
    near = [
        (one["n"], two["n"])
        for one in sides[0]
        for two in sides[1]
        if one["key"] == two["key"] and abs(one["at"] - two["at"]) <= within
    ]
    assert late
    assert near
    for options in ({"take": "all"}, {"take": 7}, {"take": 1}, {"chunk": 20, "take": 3}, {"lanes": 2, "chunk": 50}):
        assert run(**options) == (sorted(near), late), options


def test_a_flat_map_may_give_any_number():
    def make(flow, out):
        flow.read("r", readings(500)).flat_map("some", lambda r: [r] * (r["n"] % 3)).write("w", out)

    (one, two), _ = both(make)
    assert two == one


def test_keyed_steps_see_the_records_of_a_key_in_order():
    def make(flow, out):
        stream = flow.read("r", readings()).map("m", lambda r: r)
        stream.key_by("key").process("count", numbered).write("w", out)

    (one, two), report = both(make)
    assert by_key(two) == by_key(one)
    assert report.last.steps["count"].instances == 2


def test_keyed_windows_stay_with_their_keys():
    flow = Flow("keyed")
    stream = flow.read("r", readings()).key_by("key").window("a", Count(3), x=agg.sum("x"))
    stream.filter("f", col.x > 1).key_by("key").window("b", Count(2), x=agg.max("x")).write("w", io.Discard())
    assert [move.stream[0] for move in laid_out(flow).moves] == ["r"]


def test_a_second_key_that_shares_a_column_with_the_first_needs_no_second_move():
    def make(flow, out):
        stream = flow.read("r", readings()).with_columns("c", half=col.n % 2, five=col.n - col.n % 5)
        means = stream.key_by("key", "half").scan("mean", BlockAverage(2, "x")).with_columns("same", z=col.x)
        means.key_by("key", "five").window("b", Count(2), n=agg.sum("n")).write("w", out)

    flow = Flow("shares")
    make(flow, io.Discard())
    assert [move.keys for move in laid_out(flow).moves] == [("key",)]
    (one, two), _ = both(make)
    assert by_key(two) == by_key(one)
    assert one


def test_a_key_that_is_of_another_needs_no_second_move():
    order = {"order": int, "line": int, "customer": str}
    lines = [{"order": n // 3, "line": n % 3, "customer": f"c{n // 3 % 11}"} for n in range(3000)]

    def make(flow, out, of="customer"):
        stream = flow.read("r", io.Items(lines, order)).map("m", lambda r: r)
        mean = BlockAverage(1, "line", into="x")
        seen = stream.key_by("customer", "line").scan("mean", mean, out={**order, "x": float})
        seen.key_by("order", of=of).window("whole", Count(3), last=agg.max("line")).write("w", out)

    for of, keys in (("customer", [("customer",)]), ((), [("customer", "line"), ("order",)])):
        flow = Flow("orders")
        make(flow, io.Discard(), of)
        assert [move.keys for move in laid_out(flow).moves] == keys

    (one, two), _ = both(lambda flow, out: make(flow, out))
    assert as_multiset(two) == as_multiset(one)
    assert len(one) == 1000


def test_a_key_can_only_be_of_columns_that_there_are():
    with pytest.raises(FlowError, match="there is no column 'kye'"):
        Flow("typo").read("r", readings()).key_by("n", of="kye")


@pytest.mark.parametrize("window", [Tumbling("1 s"), Sliding("2 s", "1 s"), Session("30 ms"), Count(5)], ids=str)
def test_windows_of_event_time_are_those_of_one_lane(window):
    def make(flow, out, late):
        shuffled = [{**row, "at": row["at"] - (row["n"] % 13) * 40_000 + 10**9} for row in readings().items]
        stream = flow.read("r", io.Items(shuffled, READINGS)).map("m", lambda r: r)
        timed = stream.event_time("t", "at", lateness="200 ms").filter("f", col.n % 11 > 0)
        windows = timed.key_by("key").window("w", window, n=agg.count(), x=agg.sum("x"))
        windows.write("out", out)
        if not isinstance(window, Count):
            windows.late.write("late", late)
        else:
            timed.write("late", late)

    (one, two), (late_one, late_two), report = both(make)
    assert by_key(two) == by_key(one)
    assert as_multiset(late_two) == as_multiset(late_one)
    assert isinstance(window, Count) or report.late == len(late_two)
    assert not isinstance(window, Tumbling) or late_two


def test_windows_close_while_the_stream_goes_on_also_in_a_lane_without_records():
    flow, out = Flow("open"), io.Collect()
    made = io.Generate(
        lambda n: {"key": ["k"] * len(n), "at": n * 100_000}, {"key": str, "at": "time"}, rate=1000, count=None
    )
    timed = flow.read("r", made).event_time("t", "at")
    timed.key_by("key").window("w", Tumbling("1 s"), n=agg.count()).write("out", out)
    run = engine.start(flow, lanes=3)
    while not out.records:
        assert run.wait(0.01) is None
    run.stop()
    report = run.wait()
    assert sum(row["n"] for row in out.records) == report.last.records_in


def test_joins_pair_the_same_records():
    def make(flow, out):
        one = flow.read("a", readings(600)).event_time("at a", "at", lateness="1 min")
        two = flow.read("b", readings(600, 5)).event_time("at b", "at", lateness="1 min")
        one.key_by("key").join("j", two.key_by("key"), within="30 ms").write("w", out)

    (one, two), _ = both(make)
    assert as_multiset(two) == as_multiset(one)
    assert one


def test_unions_and_splits_bring_all_records():
    def make(flow, out, odd):
        even, other = flow.read("a", readings(400)).split("s", col.n % 2 == 0)
        more = flow.read("b", readings(300)).map("m", lambda r: r)
        even.union("u", more).key_by("key").process("p", lambda s, r: (s, r)).write("w", out)
        other.write("odd", odd)

    (one, two), (odd_one, odd_two), report = both(make)
    assert as_multiset(two) == as_multiset(one)
    assert odd_two == odd_one
    assert report.last.steps["s"].outs == {"out": 200, "rest": 200} or sum(report.last.steps["s"].outs.values()) == 400


def test_a_step_without_a_key_that_keeps_state_gets_all_records_in_order():
    class Last(Operator):
        stateless = False
        seen = -1

        def process(self, batch, port):
            rows = batch["n"]
            assert rows[0] == self.seen + 1
            self.seen = int(rows[-1])
            return batch

        def snapshot(self, select=None):
            return b""

    def make(flow, out):
        flow.read("r", readings()).map("m", lambda r: r).apply("last", Last).write("w", out)

    (one, two), report = both(make)
    assert two == one
    assert report.dead_letters == 0


def test_another_key_after_a_keyed_step_gets_all_of_its_records():
    def make(flow, out):
        first = flow.read("r", readings()).key_by("key").process("p", numbered, out=READINGS)
        first.with_columns("part", part=col.n % 5).key_by("part").window("w", Count(1), x=agg.sum("x")).write("o", out)

    (one, two), _ = both(make)
    assert as_multiset(two) == as_multiset(one)


def test_dead_letters_of_all_lanes_come_together():
    def make(flow, out, dead):
        def breaks(record):
            return {**record, "x": 1 / (record["n"] % 10)}

        flow.read("r", readings()).map("breaks", breaks).key_by("key").process("p", numbered).write("w", out)
        flow.dead_letters.write("dead", dead)

    (one, two), (dead_one, dead_two), report = both(make)
    assert by_key(two) == by_key(one)
    assert as_multiset(dead_two) == as_multiset(dead_one)
    assert report.dead_letters == len(dead_two) == 300
    assert all(letter["step"] == "breaks" for letter in report.examples)
    assert len(report.examples) == 5


def test_a_sink_of_dead_letters_that_fails_does_not_feed_itself():
    flow = Flow("fails")
    flow.read("r", readings(100)).map("breaks", lambda r: 1 / 0).write("w", io.Discard())
    flow.dead_letters.write("dead", io.Failing())
    report = engine.run(flow, lanes=2)
    assert report.last.steps["dead"].dead_letters == 100
    assert report.dead_letters == 200


def test_a_query_finds_the_same():
    def make(flow, out):
        stream = flow.read("readings", readings(400)).event_time("t", "at")
        found = flow.query("rises", "from every a=readings, b=readings[x > a.x and key == a.key] within 1 sec "
                           "select a.n as first, b.n as second, a.key as key", streams={"readings": stream})  # fmt: skip
        found.write("w", out)

    (one, two), _ = both(make)
    assert as_multiset(two) == as_multiset(one)
    assert one


def test_files_and_tables_are_written_once(tmp_path):
    for lanes in (1, 2):
        flow = Flow("files")
        stream = flow.read("r", readings()).map("m", lambda r: r)
        stream.write("file", io.Csv(tmp_path / f"{lanes}.csv"))
        counted = stream.key_by("key").process("p", numbered)
        counted.write("rows", io.Sqlite(tmp_path / f"{lanes}.db", "readings"))
        engine.run(flow, lanes=lanes)
    assert (tmp_path / "1.csv").read_text() == (tmp_path / "2.csv").read_text()
    rows = [sqlite3.connect(tmp_path / f"{lanes}.db").execute("select * from readings").fetchall() for lanes in (1, 2)]
    assert len(rows[0]) == 3000
    assert sorted(rows[0]) == sorted(rows[1])


def test_a_table_that_many_may_write_is_written_by_every_lane(tmp_path):
    flow = Flow("table")
    flow.read("r", readings()).map("m", lambda r: r).write("w", io.ParquetTable(tmp_path / "t"))
    assert laid_out(flow).moves == []
    report = engine.run(flow, lanes=2, chunk=100)
    files = list((tmp_path / "t").glob("*.parquet"))
    assert len({file.name.rpartition("-")[0] for file in files}) == 2  # each has a stem of its own
    assert sorted(n for file in files for n in pq.read_table(file)["n"].to_pylist()) == list(range(3000))
    assert report.last.records_out == {"w": 3000}


def test_a_sink_whose_order_shows_is_written_by_every_lane_only_where_keys_keep_it():
    flow = Flow("order")
    stream = flow.read("r", readings()).map("m", lambda r: r)
    stream.write("blocks", io.Mqtt("mqtt://127.0.0.1", "a"))
    stream.key_by("key").process("p", numbered).write("keyed", io.Mqtt("mqtt://127.0.0.1", "b"))
    stream.key_by("key").process("q", numbered).write("named", io.Mqtt("mqtt://127.0.0.1", "c", client_id="me"))
    where = laid_out(flow).where
    assert (where["blocks"], where["keyed"], where["named"]) == ("one", "key", "one")


def test_what_sinks_tell_of_their_records_is_in_the_report():
    class Tells(io.Discard):
        apart = False

        def account(self):
            return {"taken": 3000}

    flow = Flow("account")
    flow.read("r", readings()).map("m", lambda r: r).write("w", Tells())
    assert engine.run(flow, lanes=2).extra["sinks"] == {"w": {"taken": 3000}}


@pytest.mark.parametrize("options", [{"lanes": 2}, {"workers": 2}], ids=str)
def test_what_the_writers_of_one_sink_tell_is_added_up(options):
    class Tells(io.Discard):
        apart = True

        def open(self, schema):
            return Counts()

    class Counts:
        def __init__(self):
            self.taken = 0

        def write(self, batch):
            self.taken += len(batch)

        def close(self):
            pass

        def account(self):
            return {"taken": self.taken, "writers": {"open": 1}}

    flow = Flow("accounts")
    flow.read("r", readings()).key_by("key").process("p", numbered).write("w", Tells(), parallel=2)
    assert engine.run(flow, **options).extra["sinks"] == {"w": {"taken": 3000, "writers": {"open": 2}}}


def test_sinks_are_told_of_in_their_order():
    class Tells(io.Discard):
        def open(self, schema):
            return Told()

    class Told:
        def write(self, batch):
            pass

        def close(self):
            pass

        def account(self):
            return {"taken": 0}

    flow, sinks = Flow("order"), [f"sink {n}" for n in range(9)]
    read = flow.read("r", readings())
    for name in sinks:
        read.write(name, Tells())
    assert list(engine.run(flow).extra["sinks"]) == sinks


def test_a_sink_that_every_lane_has_also_takes_what_is_made_in_one(tmp_path):
    class Passes(Operator):
        stateless = False

        def process(self, batch, port):
            return batch

    def make(flow):
        stream = flow.read("r", readings(3000)).map("m", lambda r: r)
        once = stream.apply("once", Passes)
        inputs = tuple(Input(each.step, each.port, each.schema) for each in (stream, once))
        flow.add("w", Write(io.Discard()), inputs=inputs)

    report = both(make)[-1]
    assert report.last.records_out == {"w": 6000}
    assert report.last.steps["w"].instances == 2


def test_records_larger_than_a_ring_pass():
    def make(flow, out):
        big = [{"key": f"k{n}", "text": str(n) * 3_000_000} for n in range(6)]
        flow.read("r", io.Items(big)).map("m", lambda r: {**r, "text": r["text"] + "!"}).write("w", out)

    (one, two), _ = both(make)
    assert two == one


def test_a_value_that_cannot_go_from_lane_to_lane_ends_the_run():
    flow = Flow("objects")
    made = flow.read("r", readings()).map("m", lambda r: {"o": object()}, out={"o": "any"})
    made.write("w", io.Collect())
    with pytest.raises(RunError, match="cannot go from lane to lane: column 'o'"):
        engine.run(flow, lanes=2)


def test_little_room_everywhere_still_lets_all_through():
    def make(flow, out):
        stream = flow.read("r", readings()).map("m", lambda r: r).key_by("key").process("p", numbered, out=READINGS)
        stream.with_columns("part", part=col.n % 5).key_by("part").process("q", lambda s, r: (s, r)).write("w", out)

    (one, two), _ = both(make, queue_records=5)
    assert as_multiset(two) == as_multiset(one)


@examples(15)
@given(flows(), records, st.integers(1, 2), st.sampled_from([1, 4, 256]), st.sampled_from([2, 3]))
def test_generated_flows_give_the_same(plan, rows, sources, chunk, lanes):
    expected, made = build(plan, rows, sources), build(plan, rows, sources)
    engine.run(expected.flow, workers=1)
    report = engine.run(made.flow, lanes=lanes, chunk=chunk)
    assert report.left == report.dead_letters == 0
    for name, sink in made.sinks.items():
        if not order_matters(made.flow):
            assert as_multiset(sink.records) == as_multiset(expected.sinks[name].records)
        if straight(made.flow):
            assert by_key(sink.records) == by_key(expected.sinks[name].records)
        assert report.last.records_out[name] == len(sink.records)


def test_latencies_of_all_lanes_are_counted():
    flow = Flow("latency")
    flow.read("r", readings(1000)).map("m", lambda r: r).write("w", io.Discard())
    report = engine.run(flow, lanes=2, chunk=50)
    assert report.last.latency.count == 1000
    assert report.last.records_out == {"w": 1000}
    assert report.to_json()["lanes"] == 2


def test_what_lanes_refuse():
    flow = Flow("refused")
    flow.read("r", readings(10)).filter("f", col.n > 0).write("w", io.Discard())
    with pytest.raises(RunError, match="lanes is 'auto' or a whole number of at least 1; got 0"):
        engine.run(flow, lanes=0)
    with pytest.raises(RunError, match=r"lanes is at most \d+ here, 16 for each processor; got 100000"):
        engine.run(flow, lanes=100_000)
    with pytest.raises(RunError, match="give lanes or workers, not both"):
        engine.run(flow, lanes=2, workers=2)
    with pytest.raises(RunError, match="mean nothing with the runner 'threads'"):
        engine.run(flow, lanes=2, on="threads")


def test_a_flow_of_which_nothing_can_be_spread_runs_in_one_lane(caplog):
    flow, out = Flow("plain"), io.Collect()
    flow.read("r", readings(10)).write("w", out)
    report = engine.run(flow, lanes=2)
    assert len(out.records) == 10
    assert "lanes" not in report.extra
    assert "nothing of it can be spread" in caplog.text


def test_what_a_lane_cannot_open_is_an_error_at_the_start(tmp_path):
    (tmp_path / "file").touch()
    flow = Flow("cannot")
    flow.read("r", readings(10)).map("m", lambda r: r).write("w", io.ParquetTable(tmp_path / "file" / "t"))
    with pytest.raises((InputError, FlowError, OSError)):
        engine.start(flow, lanes=2)


class OpensHere(io.Discard):
    """A sink that only the process that made it can open."""

    def __init__(self):
        self.process = os.getpid()

    def open(self, schema):
        if os.getpid() != self.process:
            raise InputError("not in another process")
        return super().open(schema)


def test_what_only_another_lane_cannot_open_is_an_error_at_the_start_and_leaves_nothing_behind():
    flow = Flow("cannot")
    endless = io.Generate(lambda n: {"n": n}, {"n": int}, rate=1000)
    flow.read("r", endless).map("m", lambda r: r).write("w", OpensHere())
    before = set(threading.enumerate())
    with pytest.raises(InputError, match="not in another process"):
        engine.start(flow, lanes=2)
    assert {thread for thread in threading.enumerate() if not service.is_compiling(thread)} <= before


def test_a_batch_function_gets_batches():
    def make(flow, out):
        def doubled(batch: Batch):
            return {"x": batch["x"] * 2}

        flow.read("r", readings()).map_batches("m", doubled).write("w", out)

    (one, two), _ = both(make)
    assert two == one
