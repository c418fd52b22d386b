"""A disk that is full: sinks wait for room, and nothing is lost or there twice when it comes."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater import Flow, engine, io
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.engine import closing
from headwater.errors import NoRoomError, RunError
from headwater.io import parquet, table
from headwater.io.files import explained
from waiting import PATIENCE_S, wait_until

SCHEMA = Schema.of({"n": int})
COUNT = 3000


@pytest.fixture
def disk(monkeypatch, tmp_path):
    """A folder of files on a disk that is full while a test says so; half of what is written fits each time."""

    class Disk:
        full, folder = False, tmp_path / "full"

    Disk.folder.mkdir()
    plain = os.write

    def write(fd, data):
        if Disk.full and os.readlink(f"/proc/self/fd/{fd}").startswith(str(Disk.folder)):
            if len(data) < 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            return plain(fd, bytes(data)[: len(data) // 2])
        return plain(fd, data)

    monkeypatch.setattr(os, "write", write)
    return Disk


def numbers(count=COUNT, rate=20_000):
    return io.Generate(lambda n: {"n": n}, SCHEMA, rate=rate, count=count)


def written(path):
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("on", ["engine", "threads"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_sink_waits_for_room_and_other_pipelines_do_not(on, checkpoint, disk, tmp_path, caplog):
    flow, out, other = Flow("full"), disk.folder / "out.jsonl", io.Collect()
    read = flow.read("r", numbers())
    read.write("w", io.JsonLines(out))
    flow.read("other r", numbers()).write("other w", other)
    kept = {"checkpoint": tmp_path / "state", "every": "50 ms"} if checkpoint else {}
    run = engine.start(flow, on=on, workers=1, queue_records=500, **kept)
    wait_until(lambda: run.sample().records_out["w"] > 200)
    disk.full = True
    wait_until(lambda: "sink w waits until there is room: cannot write" in caplog.text)
    wait_until(lambda: run.sample().records_out["other w"] == COUNT)
    if checkpoint:
        complete = run.checkpointer.made.complete
        wait_until(lambda: run.checkpointer.made.complete > complete + 1)
    disk.full = False
    report = run.wait()
    assert written(out) == list(range(COUNT))
    assert report.dead_letters == 0
    assert report.retries > 0


def test_what_waits_for_room_when_a_run_is_killed_is_there_when_it_goes_on(disk, tmp_path, caplog):
    out = disk.folder / "out.jsonl"

    def flow():
        made = Flow("killed")
        made.read("r", numbers()).write("w", io.JsonLines(out))
        return made

    run = engine.start(flow(), checkpoint=tmp_path / "state", every="50 ms")
    wait_until(lambda: run.sample().records_out["w"] > 200)
    disk.full = True
    wait_until(lambda: "sink w waits until there is room" in caplog.text)
    complete = run.checkpointer.made.complete
    wait_until(lambda: run.checkpointer.made.complete > complete + 1)
    run.abort()
    assert run.wait().left > 0
    disk.full = False
    engine.run(flow(), checkpoint=tmp_path / "state")
    assert written(out) == list(range(COUNT))


@pytest.mark.parametrize("on", ["engine", "threads"])
def test_a_run_that_is_told_to_stop_does_not_wait_for_room_for_ever(on, disk, caplog, monkeypatch):
    monkeypatch.setattr(closing, "ROOM_S", 0.3)
    flow, out, other = Flow("stopped"), disk.folder / "out.jsonl", io.Collect()
    flow.read("r", numbers(None)).write("w", io.JsonLines(out))
    flow.read("other r", numbers()).write("other w", other)
    run = engine.start(flow, on=on, workers=1, queue_records=500, sample_s=0.1)
    wait_until(lambda: run.sample().records_out["w"] > 200)
    disk.full = True
    wait_until(lambda: "sink w waits until there is room" in caplog.text)
    run.stop()
    with pytest.raises(RunError, match=r"sink 'w' found its disk full, and no room for 0\.3 s after") as ended:
        run.wait(PATIENCE_S)
    report = ended.value.report
    assert report.left > 0
    assert len(written(out)) == report.last.records_out["w"]
    assert report.last.records_in == report.last.records_out["w"] + report.last.records_out["other w"] + report.left
    # what can be drained is: none of the other pipeline is left
    assert len(other.records) == report.last.records_out["other w"]
    assert not report.last.steps["other w"].left


@pytest.fixture
def full_for_arrow(monkeypatch, tmp_path):
    """A file that says, for as long as it is there, that tables and Parquet files find no room; lanes look at it too."""
    full = tmp_path / "no room"
    full.touch()

    def watched(plain, path_of):
        def write(*given):
            if full.exists():
                (tmp_path / "tried").touch()
                raise explained(OSError(errno.ENOSPC, ""), path_of(*given), "write")
            return plain(*given)

        return write

    monkeypatch.setattr(table, "write_parts", watched(table.write_parts, lambda *given: given[3]))
    monkeypatch.setattr(parquet._Encoded, "settle", watched(parquet._Encoded.settle, lambda encoded: encoded._path))
    return full


def flow_to(sink):
    flow = Flow("at the end")
    flow.read("r", io.Items([{"n": n} for n in range(1000)], SCHEMA)).write("w", sink)
    return flow


def found_in(paths):
    found = []
    for path in paths:
        reader = io.Parquet(path).open(pytest.fail)
        while (read := reader.read(100_000, 1)) is not None:
            found += read["n"].tolist()
        reader.close()
    return sorted(found)


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("kind", ["table", "file"])
def test_a_disk_that_is_full_at_the_end_is_waited_for_in_lanes_too(kind, lanes, full_for_arrow, tmp_path):
    sink = io.ParquetTable(tmp_path / "t") if kind == "table" else io.Parquet(tmp_path / "t.parquet")
    run = engine.start(flow_to(sink), lanes=lanes)
    with ThreadPoolExecutor() as pool:
        ending = pool.submit(run.wait)
        wait_until((tmp_path / "tried").exists)
        (tmp_path / "tried").unlink()
        wait_until((tmp_path / "tried").exists)  # it looks again
        assert not ending.done()
        full_for_arrow.unlink()
    assert ending.result().dead_letters == 0
    assert found_in((tmp_path / "t").glob("*.parquet") if kind == "table" else [tmp_path / "t.parquet"]) == list(
        range(1000)
    )


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("kind", ["table", "file"])
def test_at_the_end_too_a_run_that_is_told_to_stop_gives_up(kind, lanes, full_for_arrow, tmp_path, monkeypatch):
    monkeypatch.setattr(closing, "ROOM_S", 0.3)
    sink = io.ParquetTable(tmp_path / "t") if kind == "table" else io.Parquet(tmp_path / "t.parquet")
    run = engine.start(flow_to(sink), lanes=lanes)
    with ThreadPoolExecutor() as pool:
        ending = pool.submit(run.wait)
        wait_until((tmp_path / "tried").exists)
        run.stop()
    with pytest.raises(RunError, match=r"'w' .*disk (is )?full") as ended:
        ending.result()
    assert ended.value.report.dead_letters + ended.value.report.left == 1000
    assert ended.value.report.last.records_out["w"] == 0
    assert not list(tmp_path.rglob("*.parquet*"))


def test_who_wants_to_stop_at_a_full_disk_does(disk):
    disk.full = True
    flow = Flow("stops")
    flow.read("r", numbers(100)).write("w", io.JsonLines(disk.folder / "out.jsonl"), on_error="stop")
    with pytest.raises(RunError, match=r"step 'w' stopped the run.*the disk is full"):
        engine.run(flow)


def test_sqlite_says_that_there_is_no_room_and_takes_all_when_there_is(tmp_path):
    schema = Schema.of({"text": str})
    batch = Batch.of({"text": ["x" * 1000] * 200}, schema)
    writer = io.Sqlite(tmp_path / "full.db", "t").open(schema)
    writer._connection.execute("PRAGMA max_page_count = 20")
    with pytest.raises(NoRoomError, match="the disk is full"):
        writer.write(batch)
    writer._connection.execute("PRAGMA max_page_count = 100000")
    assert not writer.write(batch)
    assert writer._connection.execute("select count(*) from t").fetchone() == (200,)
    writer.close()


def test_a_parquet_file_goes_on_when_there_is_room_again(disk):
    path = disk.folder / "out.parquet"
    batches = [Batch.of({"n": list(range(start, start + 40_000))}, SCHEMA) for start in range(0, 240_000, 40_000)]
    writer = io.Parquet(path).open(SCHEMA)
    for number, batch in enumerate(batches):
        disk.full = number == 4  # where the second row group would be written
        if disk.full:
            for _ in range(3):
                with pytest.raises(NoRoomError, match="the disk is full"):
                    writer.write(batch)
            disk.full = False
        assert not writer.write(batch)
    writer.close()
    reader, found = io.Parquet(path).open(pytest.fail), []
    while (read := reader.read(100_000, 1)) is not None:
        found += read["n"].tolist()
    reader.close()
    assert found == list(range(240_000))
