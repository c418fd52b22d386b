"""A run that was stopped, and one that goes on: together they do what one undisturbed run does."""

import json
import os
import shutil
import signal
import sqlite3
import time

import pytest

from headwater import Flow, agg, col, engine, io, retry
from headwater.errors import HeadwaterError, RunError
from headwater.flow import Tumbling
from headwater.io.transactions.cut_file import CutFile
from headwater.io.transactions.line_file import LineFile
from waiting import PATIENCE_S, wait_until

FIELDS = {"k": str, "x": int, "t": "time"}


def lines(path, numbers):
    with path.open("a") as file:
        file.writelines(f'{{"k":"{"abc"[i % 3]}","x":{i},"t":{i * 1_000_000}}}\n' for i in numbers)


def summed(total, record):
    total = (total or 0) + record["x"]
    return total, {"k": record["k"], "total": total}


def sums(source, sink, parallel=1, reads="read", total=int):
    flow = Flow("sums")
    keyed = flow.read(reads, source).key_by("k")
    keyed.process("sum", summed, out={"k": str, "total": total}, parallel=parallel).write("write", sink)
    return flow


def expected(count):
    totals, out = {}, []
    for i in range(count):
        totals["abc"[i % 3]] = total = totals.get("abc"[i % 3], 0) + i
        out.append(("abc"[i % 3], total))
    return sorted(out)


def written(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted((row["k"], row["total"]) for row in rows)


@pytest.fixture
def files(tmp_path):
    lines(tmp_path / "in.jsonl", range(1000))
    return tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "checkpoint"


@pytest.mark.parametrize("on", ["engine", "threads"])
def test_a_run_to_the_end_and_another_over_more_of_the_file(files, on):
    source, out, checkpoint = files
    flow = sums(io.JsonLines(source, FIELDS), io.JsonLines(out))
    first = engine.run(flow, on=on, checkpoint=checkpoint)
    assert first.extra["checkpoints"]["complete"] == 1
    lines(source, range(1000, 1500))
    second = engine.run(flow, on=on, checkpoint=checkpoint)
    assert second.last.records_in == 500
    assert written(out) == expected(1500)


@pytest.mark.parametrize("on", ["engine", "threads"])
@pytest.mark.parametrize("parallel", [1, 2])
def test_a_run_that_is_stopped_again_and_again(files, on, parallel):
    source, out, checkpoint = files
    lines(source, range(1000, 3000))
    for _ in range(60):
        paced = io.Replay(io.JsonLines(source, FIELDS), rate=6000, loop=False)
        flow = sums(paced, io.JsonLines(out), parallel)
        engine.run(flow, on=on, checkpoint=checkpoint, every="20 ms", seconds=0.06)
        if len(written(out)) == 3000:
            break
    engine.run(flow, on=on, checkpoint=checkpoint)  # on a busy machine, so many short runs may not come to the end
    assert written(out) == expected(3000)


def test_a_stop_leaves_windows_open_and_a_later_run_closes_them(tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.csv"
    lines(source, range(90))

    def flow(last):
        made = Flow("windows")
        read = made.read("read", io.Replay(io.JsonLines(source, FIELDS), rate=last, loop=False))
        window = read.event_time("time", "t").key_by("k").window("minute", Tumbling("60 s"), n=agg.count())
        window.select("result", "k", "n").write("write", io.Csv(out))
        return made

    engine.run(flow(20), checkpoint=tmp_path / "checkpoint", seconds=0.2)  # stops long before the first minute is over
    assert out.read_text().split() == ["k,n"]
    engine.run(flow(1e6), checkpoint=tmp_path / "checkpoint")
    assert sorted(out.read_text().split()[1:]) == sorted([f"{k},{n}" for k in "abc" for n in (20, 10)])


def test_a_sink_without_transactions_has_all_that_was_read_before_a_checkpoint(files):
    source, _, checkpoint = files
    kept = io.Collect()
    engine.run(sums(io.JsonLines(source, FIELDS), kept), checkpoint=checkpoint)
    assert sorted((row["k"], row["total"]) for row in kept.records) == expected(1000)


def test_keyed_state_is_spread_over_another_number_of_instances(files):
    source, out, checkpoint = files
    for parallel, more in ((1, range(1000, 1300)), (3, range(1300, 1600)), (2, range(0))):
        engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out), parallel), checkpoint=checkpoint)
        lines(source, more)
    engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out), 2), checkpoint=checkpoint)
    assert written(out) == expected(1600)


def test_a_full_queue_is_saved_rather_than_waited_for(files):
    source, out, checkpoint = files

    def slow(record):
        time.sleep(0.02)
        return record

    def flow(function):
        made = Flow("slow")
        read = made.read("read", io.JsonLines(source, FIELDS))
        read.map("slow", function, out=FIELDS).write("write", io.JsonLines(out))
        return made

    run = engine.start(flow(slow), checkpoint=checkpoint, every="20 ms", take=1)
    while run.sample().records_in < 1000:  # all wait for the slow step
        time.sleep(0.02)
    before = run.checkpointer.to_json()["complete"]
    while run.checkpointer.to_json()["complete"] < before + 2:
        time.sleep(0.02)
    done = run.sample().steps["slow"].records_in
    run.abort()
    run.wait()
    assert done < 900
    report = engine.run(flow(dict), checkpoint=checkpoint)
    assert report.extra["checkpoints"]["restored"]["slow"] > 100
    assert sorted(json.loads(line)["x"] for line in out.read_text().splitlines()) == list(range(1000))


# -- what does not fit ----------------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(files):
    source, out, checkpoint = files
    engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out)), checkpoint=checkpoint)
    return files


def test_another_flow_is_refused(stopped):
    source, out, checkpoint = stopped
    other = Flow("other")
    other.read("read", io.JsonLines(source, FIELDS)).write("write", io.JsonLines(out))
    with pytest.raises(RunError, match="belongs to flow 'sums', not to 'other'"):
        engine.run(other, checkpoint=checkpoint)


def test_another_file_is_refused(stopped, tmp_path):
    _, out, checkpoint = stopped
    lines(tmp_path / "other.jsonl", range(3))
    with pytest.raises(RunError, match=r"source 'read' is another: it read .*in\.jsonl then"):
        engine.run(sums(io.JsonLines(tmp_path / "other.jsonl", FIELDS), io.JsonLines(out)), checkpoint=checkpoint)


def test_a_step_that_is_gone_is_named_unless_that_is_allowed(stopped):
    source, out, checkpoint = stopped
    flow = Flow("sums")
    flow.read("read", io.JsonLines(source, FIELDS)).select("cut", "k", total=col.x).write("write", io.JsonLines(out))
    with pytest.raises(RunError, match=r"step 'sum'.*--allow-dropped-state"):
        engine.run(flow, checkpoint=checkpoint)
    lines(source, [3000])
    assert engine.run(flow, checkpoint=checkpoint, allow_dropped_state=True).last.records_in == 1


def test_a_step_with_other_columns_is_refused(stopped):
    source, out, checkpoint = stopped
    flow = sums(io.JsonLines(source, FIELDS), io.JsonLines(out), total=float)
    with pytest.raises(RunError, match=r"'sum' gave \(k: text, total: int\) then, and gives \(k: text, total: float\)"):
        engine.run(flow, checkpoint=checkpoint)


AGAIN = "from every a=levels"


def queried(source, sink, text):
    flow = Flow("queried")
    flow.read("levels", io.JsonLines(source, FIELDS))
    flow.query("asked", text).write("write", io.JsonLines(sink))
    return flow


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("from levels#window.length(5) select sum(x) as n", "from levels#window.length(5) select max(x) as n"),
        ("from levels#window.length(5) select sum(x) as n", "from levels#window.length(9) select sum(x) as n"),
        ("from levels#window.lengthBatch(7) select min(x) as n", "from levels#window.lengthBatch(7) select max(x) as n"),
        ("from levels select count() as n group by k", "from levels select count() as n"),
        (f"{AGAIN} -> b=levels[x == a.x] select a.k as n", f"{AGAIN} -> b=levels[k == a.k] select a.k as n"),
        (f"{AGAIN} -> b=levels[x == a.x] select a.x as n", f"{AGAIN} -> b=levels[x == a.x] select b.x as n"),
        (f"{AGAIN}, b=levels[x < a.x] select a.x as n", f"{AGAIN}, b=levels<3>, c=levels[x < a.x] select a.x as n"),
    ],
)  # fmt: skip
def test_another_query_is_refused_the_state_of_the_one_before(files, then, now):
    source, out, checkpoint = files
    engine.run(queried(source, out, then), checkpoint=checkpoint)
    with pytest.raises(RunError, match=r"step 'asked' was '.*' then, and is '.*' now; what it has saved does not fit"):
        engine.run(queried(source, out, now), checkpoint=checkpoint)
    spaced = then.replace(" ", "  ")
    assert engine.run(queried(source, out, spaced), checkpoint=checkpoint).last.records_in == 0


def picked(source, sink, name, *columns):
    flow = Flow("picked")
    read = flow.read("read", io.JsonLines(source, FIELDS))
    read.select("pick", *columns).filter("some", col.x >= 0).write(
        "write", io.Csv(sink) if name == "csv" else io.JsonLines(sink)
    )
    return flow


def test_other_columns_of_a_step_that_keeps_nothing_are_told_and_the_flow_goes_on(files, caplog):
    source, out, checkpoint = files
    engine.run(picked(source, out, "jsonl", "k", "x"), checkpoint=checkpoint)
    engine.run(picked(source, out, "jsonl", "k", "x"), checkpoint=checkpoint)
    assert "goes on with these" not in caplog.text
    lines(source, [3000])
    engine.run(picked(source, out, "jsonl", "x"), checkpoint=checkpoint)
    assert "step pick gave (k: text, x: int) at the checkpoint, and gives (x: int) now; it keeps nothing" in caplog.text
    assert caplog.text.count("goes on with these") == 1  # not of those behind it
    assert json.loads(out.read_text().splitlines()[-1]) == {"x": 3000}


def test_a_file_with_the_header_of_other_columns_is_refused_before_anything_is_read(files, tmp_path):
    source, _, checkpoint = files
    table = tmp_path / "table.csv"
    engine.run(picked(source, table, "csv", "k", "x"), checkpoint=checkpoint)
    before = table.read_bytes()
    lines(source, [3000])
    with pytest.raises(HeadwaterError, match="header"):
        engine.run(picked(source, table, "csv", "x"), checkpoint=checkpoint)
    assert table.read_bytes() == before
    engine.run(picked(source, table, "csv", "k", "x"), checkpoint=checkpoint)
    assert table.read_text().splitlines()[-1].endswith("3000")


class Away:
    """A sink that is away, or keeps what comes."""

    def __init__(self, away):
        self.away, self.records = away, []

    def open(self, schema):
        return self

    def write(self, batch):
        if self.away:
            raise OSError("away")
        self.records += batch.rows()

    def close(self):
        pass


def test_other_columns_are_refused_while_records_with_the_old_ones_are_on_their_way(tmp_path):
    def flow(sink, **more):
        made = Flow("changed")
        read = made.read("read", io.Generate(lambda n: {"n": n}, {"n": int}, rate=50_000, count=300))
        read.select("cut", "n", **more).write("write", sink, on_error=retry(within="1 h", backoff="1 h", longest="1 h"))
        return made

    checkpoint = tmp_path / "checkpoint"
    run = engine.start(flow(Away(True)), checkpoint=checkpoint, every="50 ms")
    wait_until(lambda: run.sample().steps["write"].retries == 1)
    complete = run.checkpointer.made.complete
    wait_until(lambda: run.checkpointer.made.complete > complete + 1)
    run.abort()
    run.wait()
    told = r"step 'write' got \(n: int\) then, and gets \(n: int, double: int\) now; records were on their way"
    with pytest.raises(RunError, match=told):
        engine.run(flow(Away(False), double=col.n * 2), checkpoint=checkpoint)
    as_it_was, changed = Away(False), Away(False)
    engine.run(flow(as_it_was), checkpoint=checkpoint)
    assert [row["n"] for row in as_it_was.records] == list(range(300))
    engine.run(flow(changed, double=col.n * 2), checkpoint=checkpoint)  # nothing is on its way any more


def test_a_new_step_starts_empty(stopped):
    source, out, checkpoint = stopped
    lines(source, range(1000, 1003))
    flow, counted = Flow("sums"), io.Collect()
    keyed = flow.read("read", io.JsonLines(source, FIELDS)).key_by("k")
    keyed.process("sum", summed, out={"k": str, "total": int}).write("write", io.JsonLines(out))
    keyed.process("count", lambda n, r: ((n or 0) + 1, {"n": (n or 0) + 1}), out={"n": int}).write("new", counted)
    engine.run(flow, checkpoint=checkpoint)
    assert [row["n"] for row in counted.records] == [1, 1, 1]


def test_a_folder_in_use_is_refused_and_the_holder_named(files):
    source, out, checkpoint = files
    paced = io.Replay(io.JsonLines(source, FIELDS), rate=100)
    run = engine.start(sums(paced, io.JsonLines(out)), checkpoint=checkpoint)
    try:
        with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
            engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out)), checkpoint=checkpoint)
    finally:
        run.abort()
        run.wait()


def test_state_that_cannot_be_saved_ends_the_run_and_names_the_step(files):
    source, out, checkpoint = files
    flow = Flow("unsaved")
    keyed = flow.read("read", io.Replay(io.JsonLines(source, FIELDS), rate=1000)).key_by("k")
    keyed.process("keeps", lambda state, r: (object(), None), out={"k": str}).write("write", io.JsonLines(out))
    with pytest.raises(RunError, match="step 'keeps' cannot be saved"):
        engine.run(flow, checkpoint=checkpoint, every="50 ms", seconds=10)


# -- trouble with the folder ----------------------------------------------------------------------------------------------


def test_a_spoilt_checkpoint_is_told_and_the_one_before_is_used(files, caplog):
    source, _, checkpoint = files

    def flow():
        return sums(io.JsonLines(source, FIELDS), io.Collect())

    engine.run(flow(), checkpoint=checkpoint)
    lines(source, range(1000, 1100))
    engine.run(flow(), checkpoint=checkpoint)
    last = max(checkpoint.glob("*.checkpoint"))
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 1
    last.write_bytes(data)
    report = engine.run(flow(), checkpoint=checkpoint)
    assert "its checksum is wrong" in caplog.text
    assert report.last.records_in == 100


def test_half_a_checkpoint_is_told(files, caplog):
    source, _, checkpoint = files
    engine.run(sums(io.JsonLines(source, FIELDS), io.Collect()), checkpoint=checkpoint)
    last = max(checkpoint.glob("*.checkpoint"))
    last.write_bytes(last.read_bytes()[:-10])
    with pytest.raises(RunError, match=r"no checkpoint in .* can be read"):
        engine.run(sums(io.JsonLines(source, FIELDS), io.Collect()), checkpoint=checkpoint)
    assert "bytes where" in caplog.text


def test_a_folder_that_is_deleted_while_running_is_made_again(files):
    source, _, checkpoint = files
    paced = io.Replay(io.JsonLines(source, FIELDS), rate=2000)
    run = engine.start(sums(paced, io.Collect()), checkpoint=checkpoint, every="20 ms")
    while not run.checkpointer.to_json()["complete"]:
        time.sleep(0.01)
    checkpoint.rename(checkpoint.with_name("away"))
    before = run.checkpointer.to_json()["complete"]
    until = time.monotonic() + PATIENCE_S
    while run.checkpointer.to_json()["complete"] < before + 2 and time.monotonic() < until:
        time.sleep(0.02)
    run.stop()
    assert run.wait().extra["checkpoints"]["complete"] >= before + 2
    assert list(checkpoint.glob("*.checkpoint"))


def test_sinks_have_every_record_once_though_the_folder_is_deleted_while_running(tmp_path):
    out, table, checkpoint = tmp_path / "out.jsonl", io.Sqlite(tmp_path / "out.db", "t"), tmp_path / "checkpoint"

    def flow():
        made = Flow("two")
        read = made.read("read", io.Generate(lambda n: {"x": n}, {"x": int}, rate=1000, count=1500))
        read.write("text", io.JsonLines(out))
        read.write("table", table)
        return made

    def two_more():
        until, before = time.monotonic() + PATIENCE_S, run.checkpointer.to_json()["complete"]
        while run.checkpointer.to_json()["complete"] < before + 2:
            assert time.monotonic() < until
            time.sleep(0.01)

    run = engine.start(flow(), checkpoint=checkpoint, every="20 ms")
    two_more()
    shutil.rmtree(checkpoint.rename(tmp_path / "away"))
    two_more()
    run.stop()
    run.wait()
    engine.run(flow(), checkpoint=checkpoint)
    assert [json.loads(line)["x"] for line in out.read_text().splitlines()] == list(range(1500))
    with sqlite3.connect(table.path) as base:
        assert [x for (x,) in base.execute("SELECT x FROM t")] == list(range(1500))


def test_a_run_in_another_process_killed_without_warning_goes_on(files):
    source, out, checkpoint = files
    lines(source, range(1000, 4000))
    kills = 0
    while True:
        child = os.fork()
        if child == 0:
            paced = io.Replay(io.JsonLines(source, FIELDS), rate=10_000, loop=False)
            engine.run(sums(paced, io.JsonLines(out), 2), checkpoint=checkpoint, every="10 ms")
            os._exit(0)
        time.sleep(0.15 * 1.1**kills)  # on a busy machine a run may not even have begun by then
        os.kill(child, signal.SIGKILL)
        if os.WIFEXITED(os.waitpid(child, 0)[1]):
            break
        kills += 1
        assert kills < 200
    assert kills
    assert written(out) == expected(4000)


def test_a_folder_of_something_else_is_refused(files):
    source, out, checkpoint = files
    checkpoint.mkdir()
    (checkpoint / "headwater.json").write_text("{}")
    with pytest.raises(RunError, match="is one of Spark's"):
        engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out)), checkpoint=checkpoint)
    (checkpoint / "headwater.json").rename(checkpoint / "photos")
    with pytest.raises(RunError, match="is no checkpoint of Headwater's, and not empty"):
        engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out)), checkpoint=checkpoint)


def test_a_folder_that_could_not_be_read_is_free_for_the_next_run(stopped):
    source, out, checkpoint = stopped
    last = max(checkpoint.glob("*.checkpoint"))
    good = last.read_bytes()
    last.write_bytes(good[:-10])
    with pytest.raises(RunError, match="can be read"):
        engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out)), checkpoint=checkpoint)
    last.write_bytes(good)
    engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out)), checkpoint=checkpoint)


class Failing:
    """A transactional sink whose calls fail when told to."""

    delivery = "transactional"

    def __init__(self, path):
        self.path, self.failing = path, set()

    def open(self, schema):
        return io.JsonLines(self.path).open(schema)

    def transaction(self, schema, ledger):
        opened = io.JsonLines(self.path).transaction(schema, ledger)
        for name in ("cut", "commit"):
            setattr(opened, name, self._watched(name, getattr(opened, name)))
        return opened

    def _watched(self, name, call):
        def watched(number):
            if name in self.failing:
                raise OSError(f"cannot {name}")
            safe = call(number)
            return self._watched("make safe", lambda number: safe()).__get__(number) if name == "cut" else None

        return watched


def test_a_sink_that_fails_at_the_end_is_named_and_the_next_run_has_all(files):
    source, out, checkpoint = files
    for failing, told in (
        ("cut", "step 'write' could not be saved: cannot cut"),
        ("make safe", "step 'write' could not be saved: cannot make safe"),
        ("commit", "safe in the check"),
    ):
        sink = Failing(out)
        sink.failing = {failing}
        with pytest.raises(RunError, match=told):
            engine.run(sums(io.JsonLines(source, FIELDS), sink), checkpoint=checkpoint)
    engine.run(sums(io.JsonLines(source, FIELDS), Failing(out)), checkpoint=checkpoint)
    assert written(out) == expected(1000)


def test_lines_that_are_no_records_are_dead_letters_once(tmp_path):
    source, dead, checkpoint = tmp_path / "in.jsonl", tmp_path / "dead.jsonl", tmp_path / "checkpoint"
    source.write_text("".join(f'{{"k":"a","x":{i},"t":0}}\nbad {i}\n' for i in range(300)))

    def flow(delay_s):
        def slow(record):
            time.sleep(delay_s)
            return record

        made = Flow("slow")
        made.read("read", io.JsonLines(source, FIELDS)).map("slow", slow, out=FIELDS).write("write", io.Collect())
        made.dead_letters.write("dead", io.JsonLines(dead))
        return made

    run = engine.start(flow(0.01), checkpoint=checkpoint, every="20 ms", queue_records=4, chunk=4, take=1)
    while run.checkpointer.to_json()["complete"] < 3:
        time.sleep(0.01)
    run.abort()
    run.wait()
    engine.run(flow(0), checkpoint=checkpoint)
    found = sorted(json.loads(line)["record"] for line in dead.read_text().splitlines())
    assert found == sorted(f"bad {i}" for i in range(300))


def test_a_source_under_another_name_is_refused_rather_than_read_again_into_the_old_state(stopped):
    source, out, checkpoint = stopped
    flow = sums(io.JsonLines(source, FIELDS), io.JsonLines(out), reads="renamed")
    with pytest.raises(RunError, match=r"source 'renamed' was called 'read' then"):
        engine.run(flow, checkpoint=checkpoint)


def test_a_window_of_another_length_is_refused(tmp_path):
    lines(tmp_path / "in.jsonl", range(100))

    def flow(length):
        made = Flow("windows")
        paced = io.Replay(io.JsonLines(tmp_path / "in.jsonl", FIELDS), rate=200)
        window = made.read("read", paced).event_time("time", "t").key_by("k")
        window.window("sum", Tumbling(length), n=agg.count()).write("write", io.Collect())
        return made

    engine.run(flow("60 s"), checkpoint=tmp_path / "checkpoint", seconds=0.1)
    with pytest.raises(RunError, match=r"step 'sum' was .* then, and is .* now"):
        engine.run(flow("50 s"), checkpoint=tmp_path / "checkpoint", seconds=0.1)


def test_what_is_appended_to_a_sinks_file_between_two_runs_stays(stopped):
    source, out, checkpoint = stopped
    with out.open("a") as file:
        file.write('{"k":"replayed","total":1}\n')
    lines(source, range(1000, 1100))
    engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out)), checkpoint=checkpoint)
    assert written(out) == sorted([*expected(1100), ("replayed", 1)])


def test_a_sinks_file_that_is_gone_is_told(stopped):
    source, out, checkpoint = stopped
    out.unlink()
    with pytest.raises(HeadwaterError, match="the file is gone, and the checkpoint knows of"):
        engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out)), checkpoint=checkpoint)


@pytest.mark.parametrize("left", [None, ""], ids=["gone", "empty"])
def test_what_was_appended_stays_also_after_a_start_that_was_refused(stopped, left):
    source, out, checkpoint = stopped
    flow = sums(io.JsonLines(source, FIELDS), io.JsonLines(out))
    with out.open("a") as file:
        file.write('{"k":"replayed","total":1}\n')
    away = out.rename(out.with_name("away"))
    if left is not None:
        out.write_text(left)
    with pytest.raises(HeadwaterError, match=r"cannot go on writing .*Put it back|put it back"):
        engine.run(flow, checkpoint=checkpoint)
    away.replace(out)
    with out.open("a") as file:  # a start that was refused has not begun to write: this too is of others
        file.write('{"k":"replayed","total":2}\n')
    lines(source, range(1000, 1100))
    engine.run(flow, checkpoint=checkpoint)
    assert written(out) == sorted([*expected(1100), ("replayed", 1), ("replayed", 2)])


def test_what_was_appended_stays_also_after_a_start_that_another_sink_refused(tmp_path):
    source, out, other, checkpoint = (
        tmp_path / name for name in ("in.jsonl", "out.jsonl", "other.jsonl", "checkpoint")
    )
    lines(source, range(10))
    flow = Flow("two")
    read = flow.read("read", io.JsonLines(source, FIELDS))
    read.write("write", io.JsonLines(out))
    read.write("other", io.JsonLines(other))
    engine.run(flow, checkpoint=checkpoint)
    lines(out, [100])
    away = other.rename(tmp_path / "away")
    with pytest.raises(HeadwaterError, match="the file is gone"):
        engine.run(flow, checkpoint=checkpoint)
    away.replace(other)
    lines(out, [101])
    lines(source, [10])
    engine.run(flow, checkpoint=checkpoint)
    assert [json.loads(line)["x"] for line in out.read_text().splitlines()] == [*range(10), 100, 101, 10]


@pytest.mark.parametrize("killed", [False, True])
def test_a_file_that_another_has_written_in_the_place_of_a_sinks_is_refused_and_not_cut(stopped, killed):
    source, out, checkpoint = stopped
    if killed:  # no note says how long the file was left
        journal = checkpoint / "sinks" / "write" / "written"
        journal.write_text(json.dumps(json.loads(journal.read_text()) | {"closed": None}))
    theirs = out.read_text().replace("a", "z") * 2
    out.write_text(theirs)
    lines(source, range(1000, 1100))
    with pytest.raises(HeadwaterError, match=r"are not those that runs with this checkpoint wrote"):
        engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out)), checkpoint=checkpoint)
    assert out.read_text() == theirs


def test_a_sink_under_another_path_does_not_cut_what_is_there(stopped):
    source, out, checkpoint = stopped
    other = out.with_name("other.jsonl")
    other.write_text("short\n")
    flow = sums(io.JsonLines(source, FIELDS), io.JsonLines(other))
    with pytest.raises(HeadwaterError, match="the checkpoint knows of"):
        engine.run(flow, checkpoint=checkpoint)
    theirs = "a line of another program\n" * 1000
    other.write_text(theirs)
    with pytest.raises(HeadwaterError, match="are not those"):
        engine.run(flow, checkpoint=checkpoint)
    assert other.read_text() == theirs


@pytest.mark.parametrize("sink", [io.JsonLines, io.Csv])
@pytest.mark.parametrize("wrote", [False, True])
def test_a_run_that_was_killed_before_anything_counted_leaves_what_others_put_there(files, sink, wrote):
    source, out, checkpoint = files
    flow = sums(io.JsonLines(source, FIELDS), sink(out))
    begin_and_die(flow, checkpoint, CutFile if wrote else LineFile, "_note" if wrote else "write")
    assert bool(wrote) == (out.stat().st_size > 20)  # more than a header
    theirs = "k,total\n" + "a line of another program\n" * 1000
    out.write_text(theirs)
    with pytest.raises(HeadwaterError, match=r"is not theirs; does another program write the file too"):
        engine.run(flow, checkpoint=checkpoint)
    assert out.read_text() == theirs


@pytest.mark.parametrize("sink", [io.JsonLines, io.Csv])
def test_a_run_that_was_killed_before_anything_counted_is_gone_on_with(files, sink):
    source, out, checkpoint = files
    flow = sums(io.JsonLines(source, FIELDS), sink(out))
    for _ in range(2):
        begin_and_die(flow, checkpoint, CutFile, "_note")
        assert out.stat().st_size > 100
    engine.run(flow, checkpoint=checkpoint)
    assert len(out.read_text().splitlines()) == 1000 + (sink is io.Csv)


def begin_and_die(flow, checkpoint, owner, call):
    """Run a flow in a child that is killed at a call, before any checkpoint."""
    if (child := os.fork()) == 0:
        setattr(owner, call, lambda *given: os.kill(os.getpid(), signal.SIGKILL))
        engine.run(flow, checkpoint=checkpoint)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_a_copy_of_a_sinks_file_will_do(stopped):
    source, out, checkpoint = stopped
    copied = out.with_name("copy")
    copied.write_bytes(out.read_bytes())
    copied.replace(out)
    lines(source, range(1000, 1100))
    engine.run(sums(io.JsonLines(source, FIELDS), io.JsonLines(out)), checkpoint=checkpoint)
    assert written(out) == expected(1100)


def test_a_last_line_that_is_half_written_is_left_for_a_later_run(files, caplog):
    source, out, checkpoint = files
    with source.open("a") as file:
        file.write('{"k":"a","x":10')
    flow = sums(io.JsonLines(source, FIELDS), io.JsonLines(out))
    assert engine.run(flow, checkpoint=checkpoint).last.records_in == 1000
    assert "has no end yet" in caplog.text
    with source.open("a") as file:
        file.write('00,"t":0}\n')
    report = engine.run(flow, checkpoint=checkpoint)
    assert (report.last.records_in, report.dead_letters) == (1, 0)
    total = sum(i for i in range(1000) if i % 3 == 0) + 1000
    assert written(out) == sorted([*expected(1000), ("a", total)])


def test_a_csv_row_that_is_half_written_is_left_for_a_later_run(tmp_path):
    source, kept = tmp_path / "in.csv", io.Collect()
    source.write_text("k,n\na,1\n")
    flow = Flow("rows")
    flow.read("read", io.Csv(source, {"k": str, "n": int})).write("write", kept)
    for more, there in (("", [1]), ("b,12", [1]), ("345\n", [1, 12345])):
        with source.open("a") as file:
            file.write(more)
        engine.run(flow, checkpoint=tmp_path / "checkpoint")
        assert [row["n"] for row in kept.records] == there
