"""Dead letters that are kept in a folder, on both runners and in lanes, and given to other kinds of steps."""

import json
import os
import signal

import pytest

from headwater import Flow, engine, io
from headwater.engine.dead import replay
from headwater.io.dead import DeadLetterFolder

ROWS = [{"k": "ab"[n % 2], "n": n} for n in range(100)]


@pytest.mark.parametrize("options", [{"on": "engine"}, {"on": "threads"}, {"lanes": 2}])
def test_dead_letters_are_kept_beside_what_the_flow_does_with_them(options, tmp_path):
    def fails(record):
        if record["n"] % 10 == 3:
            raise ValueError("no")
        return record

    flow, dead = Flow("kept"), io.Collect()
    flow.read("r", io.Items(ROWS)).map("m", fails).write("w", io.Discard())
    flow.dead_letters.write("dead", dead)
    report = engine.run(flow, dead=tmp_path / "dead", **options)
    letters = list(DeadLetterFolder(tmp_path / "dead").letters())
    assert sorted(letter.to_json()["record"]["n"] for letter in letters) == list(range(3, 100, 10))
    assert len(dead.records) == report.dead_letters == 10
    assert letters[0].to_json().keys() >= KEYS


KEYS = {"id", "step", "error", "record", "at_ns", "created_ns"}


def test_letters_go_again_into_a_keyed_step_and_a_sink(tmp_path):
    refuses = True

    def step(state, record):
        if refuses and record["n"] == 7:
            raise ValueError("7")
        return (state or 0) + 1, record

    class Refusing(io.Collect):
        def open(self, schema):
            return self

        def write(self, batch):
            if refuses:
                bad = [row for row, n in enumerate(batch["n"].tolist()) if n == 9]
                self.batches.append(batch)
                return dict.fromkeys(bad, "9 is refused")
            self.batches.append(batch)
            return None

        def close(self):
            pass

    def flow(out):
        made = Flow("two")
        made.read("r", io.Items(ROWS)).key_by("k").process("p", step).write("w", out)
        return made

    engine.run(flow(Refusing()), dead=tmp_path / "dead")
    letters = list(DeadLetterFolder(tmp_path / "dead").letters())
    assert [(letter.step, letter.to_json()["record"]["n"]) for letter in letters] == [("p", 7), ("w", 9)]
    refuses = False
    out = Refusing()
    done = replay(flow(out), tmp_path / "dead", letters)
    assert sorted(done.released) == [letter.id for letter in letters]
    assert sorted(row["n"] for row in out.records) == [7, 9]
    assert list(DeadLetterFolder(tmp_path / "dead").letters()) == []


def test_letters_of_a_step_that_the_flow_has_no_more_stay(tmp_path):
    flow = Flow("f")
    flow.read("r", io.Items(ROWS[:2])).map("m", lambda record: 1 / 0).write("w", io.Discard())
    engine.run(flow, dead=tmp_path / "dead")
    other = Flow("f")
    other.read("r", io.Items(ROWS)).write("w", io.Discard())
    done = replay(other, tmp_path / "dead", list(DeadLetterFolder(tmp_path / "dead").letters()))
    assert done.released == []
    assert set(done.kept.values()) == {"flow 'f' has no step 'm' (any more)"}


@pytest.mark.parametrize("options", [{}, {"lanes": 2}], ids=str)
def test_a_run_that_keeps_no_dead_letters_may_be_between_two_that_do(tmp_path, options):
    """The sink that is gone comes back: what it held then stays, and what comes now is added once."""
    path = tmp_path / "in.jsonl"

    def flow():
        made = Flow("kept")
        made.read("r", io.JsonLines(path, {"n": int})).map("m", halved).write("w", io.JsonLines(tmp_path / "out.jsonl"))
        return made

    def run(numbers, **more):
        with path.open("a") as file:
            file.writelines(f'{{"n": {n}}}\n' for n in numbers)
        engine.run(flow(), checkpoint=tmp_path / "checkpoint", **options, **more)

    dead = tmp_path / "dead"
    run(range(10), dead=dead)
    run(range(10, 20))
    run(range(20, 25))
    run(range(25, 35), dead=dead)
    run(range(35, 40), dead=dead)
    letters = [letter.to_json()["record"]["n"] for letter in DeadLetterFolder(dead).letters()]
    assert letters == [n for n in (*range(10), *range(25, 40)) if n % 2]
    written = [json.loads(line)["n"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(written) == list(range(0, 40, 2))


@pytest.mark.parametrize("gone", ["text", "table"])
def test_a_sink_may_be_left_out_for_some_runs(tmp_path, gone):
    path, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    sinks = {"text": io.JsonLines(tmp_path / "out.jsonl"), "table": io.Sqlite(tmp_path / "out.db", "t")}

    def run(numbers, *names):
        with path.open("a") as file:
            file.writelines(f'{{"n": {n}}}\n' for n in numbers)
        made = Flow("some")
        read = made.read("r", io.JsonLines(path, {"n": int}))
        for name in names:
            read.write(name, sinks[name])
        engine.run(made, checkpoint=checkpoint)

    other = next(name for name in sinks if name != gone)
    run(range(5), *sinks)
    run(range(5, 10), other)
    run(range(10, 15), *sinks)
    held = {
        "text": [json.loads(line)["n"] for line in (tmp_path / "out.jsonl").read_text().splitlines()],
        "table": [row["n"] for row in rows_of(sinks["table"])],
    }
    assert held[other] == list(range(15))
    assert held[gone] == [*range(5), *range(10, 15)]


@pytest.mark.parametrize("options", [{}, {"lanes": 2}], ids=str)
def test_what_is_replayed_after_a_kill_is_there_when_the_flow_goes_on_and_nothing_twice(tmp_path, options):
    out, checkpoint, dead = tmp_path / "out.jsonl", tmp_path / "checkpoint", tmp_path / "dead"

    def flow(step):
        made = Flow("killed")
        numbers = io.Generate(lambda n: {"n": n}, {"n": int}, rate=3000, count=1500)
        made.read("r", numbers).map("m", step, out={"n": int}).write("w", io.JsonLines(out))
        return made

    def dies(record):
        if record["n"] > 200 and list(checkpoint.glob("*.checkpoint")):
            os.kill(lead, signal.SIGKILL)
        return halved(record)

    if (child := os.fork()) == 0:
        lead = os.getpid()
        engine.run(flow(dies), checkpoint=checkpoint, every="20 ms", dead=dead, **options)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    mended = flow(lambda record: record)
    letters = list(DeadLetterFolder(dead).letters())
    done = replay(mended, dead, letters)
    assert len(done.released) + len(done.kept) == len(letters) > 0
    assert all("reads the record again" in why for why in done.kept.values())
    engine.run(mended, checkpoint=checkpoint, dead=dead, **options)
    rest = list(DeadLetterFolder(dead).letters())  # those that were on their way at the checkpoint
    assert replay(mended, dead, rest).released == [letter.id for letter in rest]
    assert sorted(json.loads(line)["n"] for line in out.read_text().splitlines()) == list(range(1500))


def halved(record):
    if record["n"] % 2:
        raise ValueError("odd")
    return record


def rows_of(source):
    reader, rows = source.open(pytest.fail), []
    while (batch := reader.read(100, 0)) is not None:
        rows += batch.rows()
    reader.close()
    return rows


@pytest.mark.parametrize("value", ["\ud800", {"a": "\ud800"}, {"\ud800": 1}])
@pytest.mark.parametrize("sink", [io.JsonLines, io.Csv, io.Parquet, io.ParquetTable])
def test_half_a_character_costs_its_record_and_not_the_run(tmp_path, sink, value):
    flow, letters = Flow("halves"), io.Collect()
    flow.read("r", io.Items([{"o": each} for each in (1, value, 2)], {"o": "any"})).write("w", sink(tmp_path / "out"))
    flow.dead_letters.write("letters", letters)
    report = engine.run(flow)
    assert report.last.records_out["w"] == 2
    assert [letter["step"] for letter in letters.records] == ["w"]
    assert "ud800" in letters.records[0]["record"]


def test_half_a_character_in_what_an_error_says_is_told_by_its_number():
    def broken(record):
        raise ValueError(f"no file '\udcff' for {record['x']}")

    flow, letters = Flow("halves"), io.Collect()
    flow.read("r", io.Items([{"x": 1}])).map("m", broken).write("w", io.Discard())
    flow.dead_letters.write("letters", letters)
    engine.run(flow)
    assert letters.records[0]["error"].startswith(r"ValueError: no file '\udcff' for 1")
