"""Sources that can be read in ranges are read by every lane, and what comes of them is what one lane makes of them."""

import json
import os
import threading
import time
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Count, Flow, agg, col, engine, io
from headwater.data.batch import NO_WATERMARK, Batch
from headwater.data.schema import Schema
from headwater.engine.lanes.inlet import Inlet
from headwater.engine.lanes.ring import THE_END, Bell, Message, Shortcut
from headwater.engine.lanes.share import SharedPosition, ShareReader, shared
from headwater.errors import InputError, RunError
from headwater.flow.endpoints import open_reader
from properties import examples

NUMBERS = {"n": int, "key": int}


def numbers(count, rate=1e9):
    return io.Generate(lambda n: {"n": n, "key": n % 7}, NUMBERS, rate, count=count)


def run(source, lanes, **options):
    flow, out = Flow("shared"), io.Collect()
    flow.read("r", source).map("m", lambda r: r).write("w", out)
    report = engine.run(flow, lanes=lanes, chunk=100, **options)
    return out.records, report


def test_generated_records_are_made_in_every_lane_and_come_in_order():
    records, report = run(numbers(20_000), 3)
    assert [row["n"] for row in records] == list(range(20_000))
    assert report.last.steps["r"].instances == 3
    assert report.last.records_in == 20_000


@pytest.mark.parametrize("rate", [300, 20_000])
def test_records_that_fall_due_by_the_clock_do_so_in_every_lane(rate):
    made = io.Generate(lambda n: {"n": n}, {"n": int, "at": "time"}, rate, duration="500 ms", time="at")
    records, report = run(made, 2)
    assert [row["n"] for row in records] == list(range(rate // 2))
    times = [row["at"] for row in records]
    assert times == sorted(times)
    assert 0.9 * 10**6 / rate < (times[-1] - times[0]) / (len(times) - 1) < 1.1 * 10**6 / rate
    assert report.last.latency.count == rate // 2


def test_a_run_of_some_seconds_ends_in_every_lane():
    records, report = run(numbers(None, 1000), 2, seconds=0.3)
    assert [row["n"] for row in records] == list(range(report.last.records_in))


def test_keyed_steps_see_shares_in_order():
    found = []
    for lanes in (1, 2):
        flow, out = Flow("keyed"), io.Collect()
        stream = flow.read("r", numbers(5000)).filter("f", col.n % 3 > 0)
        stream.key_by("key").window("w", Count(3), first=agg.first("n"), total=agg.sum("n")).write("out", out)
        engine.run(flow, lanes=lanes, chunk=64)
        found.append(Counter(tuple(row.items()) for row in out.records))
    assert found[0] == found[1]


@examples(8)
@given(
    count=st.integers(0, 3000),
    keys=st.integers(1, 9),
    chunk=st.sampled_from([1, 7, 500]),
    room=st.sampled_from([5, 10_000]),
    lanes=st.sampled_from([2, 3]),
)
def test_any_share_gives_what_one_lane_gives(count, keys, chunk, room, lanes):
    """In the order of the source without a key, and of each key with one, whichever lane took which block."""

    def found(lanes):
        flow, plain, keyed = Flow("any"), io.Collect(), io.Collect()
        stream = flow.read("r", numbers(count)).with_columns("k", key=col.n % keys)
        stream.write("plain", plain)
        stream.key_by("key").window("w", Count(3), first=agg.first("n"), total=agg.sum("n")).write("keyed", keyed)
        report = engine.run(flow, lanes=lanes, chunk=chunk, queue_records=room)
        assert report.last.records_in == count
        by_key = defaultdict(list)
        for row in keyed.records:
            by_key[row["key"]].append((row["first"], row["total"]))
        return plain.records, by_key

    assert found(lanes) == found(1)


def test_a_file_is_read_by_every_lane_and_what_is_no_record_is_told_once(tmp_path):
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps({"n": n, "text": "x" * (n % 50)}) for n in range(30_000)]
    lines[777] = "{broken"
    path.write_text("\n".join(lines))
    found = []
    for lanes in (1, 2):
        flow, out, dead = Flow("file"), io.Collect(), io.Collect()
        flow.read("r", io.JsonLines(path, {"n": int, "text": str})).map("m", lambda r: r).write("w", out)
        flow.dead_letters.write("dead", dead)
        report = engine.run(flow, lanes=lanes, chunk=1000)
        found.append((out.records, dead.records))
    assert found[0] == found[1]
    assert len(found[1][0]) == 29_999
    assert report.last.steps["r"].instances == 2
    assert report.last.records_in == 30_000


def test_what_is_replayed_is_loaded_once_and_what_is_no_record_told_once(tmp_path):
    class Loads(io.Replay):
        def numbered(self, reject):
            (tmp_path / f"loaded in {os.getpid()}").touch()
            return super().numbered(reject)

    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(["{broken", *(json.dumps({"n": n}) for n in range(1000))]))
    records, report = run(Loads(io.JsonLines(path, {"n": int}), rate=1e9, loop=False), 2)
    assert [row["n"] for row in records] == list(range(1000))
    assert report.last.steps["r"].instances == 2
    assert report.dead_letters == 1
    assert [file.name for file in tmp_path.glob("loaded*")] == [f"loaded in {os.getpid()}"]


def test_rows_with_quotes_are_read_in_one_lane_since_only_a_reader_knows_where_one_ends(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("n,text\n" + "".join(f'{n},"a\nb"\n' for n in range(500)))
    assert shared(io.Csv(path)) is None
    records, report = run(io.Csv(path), 2)
    assert [row["n"] for row in records] == list(range(500))
    assert report.last.steps["r"].instances == 1


def test_what_would_be_spilled_is_read_in_one_lane():
    records, report = run(numbers(2000), 2, when_full="spill", queue_records=50)
    assert [row["n"] for row in records] == list(range(2000))
    assert report.last.steps["r"].instances == 1


def test_a_file_that_is_not_there_is_an_error_at_the_start(tmp_path):
    with pytest.raises((InputError, RunError), match="nowhere"):
        run(io.JsonLines(tmp_path / "nowhere.jsonl", {"n": int}), 2)


def test_a_lane_with_less_to_do_takes_more_blocks():
    """Whoever asks gets the next block: a lane that is busy does not ask."""
    ranges, place = shared(numbers(1000))
    place.open()
    busy, idle = (ShareReader(ranges, place, lambda *_: None) for _ in range(2))
    assert busy.read(100, 0).length == 0  # from now on, records fall due
    blocks = [reader.read(100, 0) for reader in (busy, idle, idle, idle, busy, idle)]
    assert [batch.watermark for batch in blocks] == [0, 1, 2, 3, 4, 5]
    assert [batch["n"][0] for batch in blocks] == [0, 100, 200, 300, 400, 500]
    place.close()


def test_blocks_are_put_in_order_whoever_has_them():
    data, room = Bell(), Bell()
    paths = {lane: Shortcut(data, room) for lane in range(2)}
    schema = Schema.of({"n": int})
    reader = Inlet(schema, paths, data, in_order=True).open(lambda *_: None)

    def send(lane, block, *, whole=True):
        paths[lane].offer(Message(Batch.of({"n": [block]}, schema), NO_WATERMARK, block, whole))

    send(1, 1)
    send(1, 2)
    assert reader.read(1, 0).length == 0
    send(0, 0, whole=False)
    send(0, 0)
    send(0, 3)
    got = [reader.read(1, 0) for _ in range(5)]
    assert [batch["n"][0] for batch in got] == [0, 0, 1, 2, 3]
    for path in paths.values():
        path.offer(THE_END)
    assert reader.read(1, 0) is None
    data.close()
    room.close()


def test_blocks_of_a_source_that_only_one_lane_can_read_go_where_least_waits():
    from headwater.engine.lanes.outlet import Outlet

    data, room = Bell(), Bell()
    paths = {lane: Shortcut(data, room) for lane in range(2)}
    sender = Outlet(paths, room, "blocks").open(Schema.of(NUMBERS))
    batch = open_reader(numbers(10), lambda *_: None, None).read(10, 1)
    for _ in range(4):
        sender.write(batch)
    assert [path.waiting() for path in paths.values()] == [20, 20]
    while paths[1].take() is not None:
        pass
    sender.write(batch)
    sender.write(batch)
    assert [path.waiting() for path in paths.values()] == [20, 20]
    data.close()
    room.close()


def test_two_lanes_that_wait_for_each_others_sources_are_no_deadlock():
    first, second = SharedPosition({"ended": False}), SharedPosition({"ended": False})
    first.open()
    second.open()
    (ours, theirs), (theirs_told, ours_tells) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with first.lock():
            os.write(theirs, b"1")
            waiting = threading.Thread(target=take, args=(second,))
            waiting.start()
            os.read(theirs_told, 1)
        waiting.join()
        os._exit(0)
    os.read(ours, 1)  # the other lane has the first
    failed: list[BaseException] = []
    with second.lock():
        time.sleep(0.1)  # and waits for the second
        waiting = threading.Thread(target=take, args=(first, failed))
        waiting.start()
        time.sleep(0.1)
        os.write(ours_tells, b"1")
    waiting.join()
    assert os.waitpid(child, 0)[1] == 0
    assert failed == []
    first.close()
    second.close()


def take(position, failed=None):
    try:
        with position.lock():
            pass
    except OSError as error:
        if failed is None:
            os._exit(1)
        failed.append(error)
