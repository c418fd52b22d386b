"""PostgreSQL against a real server: what is written is read back by another client, also after kills and cuts."""

import os
import signal

import pytest
from postgresql import Postgresql
from reading import ran_until

from headwater import Flow, col, engine, io
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError, InputError, RunError
from headwater.io import files
from headwater.io.transactions import outbox
from killed import killed_until

SCHEMA = Schema.of({"id": int, "name": str, "x": float, "at": "time", "more": "any"})


@pytest.fixture(scope="module")
def server():
    server = Postgresql().start()
    yield server
    server.remove()


@pytest.fixture
def table(request, server):
    name = f"t{abs(hash(request.node.name))}"
    yield name
    server.execute(f'DROP TABLE IF EXISTS "{name}"')


def numbers(count):
    return io.Generate(lambda n: {"n": n, "half": n / 2}, {"n": int, "half": float}, rate=20_000, count=count)


def copying(server, table, count, **options):
    flow = Flow("copying")
    flow.read("in", numbers(count)).select("some", "n", "half", k=col.n % 7).write(
        "out", io.Postgres(server.url, table, **options)
    )
    return flow


def test_values_of_every_type_come_back(server, table):
    rows = [
        {"id": 1, "name": "é\t\\N\n", "x": 0.1, "at": 1_700_000_000_123_456, "more": {"a": [1, None]}},
        {"id": 2, "name": None, "x": None, "at": None, "more": None},
    ]
    writer = io.Postgres(server.url, table).open(SCHEMA)
    assert not writer.write(Batch.of_rows(rows, SCHEMA))
    writer.close()
    reader = io.Postgres(server.url, table, order="id").open(pytest.fail)
    assert reader.read(10, 0).rows() == Batch.of_rows(rows, SCHEMA).rows()
    assert reader.read(10, 0) is None
    reader.close()


def test_records_with_a_key_replace_the_old_and_those_without_are_refused_alone(server, table):
    schema = Schema.of({"k": str, "x": int})
    writer = io.Postgres(server.url, table, key="k").open(schema)
    assert not writer.write(Batch.of({"k": ["a", "b", "a"], "x": [1, 2, 3]}, schema))
    refused = writer.write(Batch.of_rows([{"k": "b", "x": 4}, {"k": None, "x": 5}, {"k": "c\0", "x": 6}], schema))
    writer.close()
    assert sorted(refused) == [1, 2]
    assert "null value" in refused[1]
    assert sorted(server.rows(f'SELECT k, x FROM "{table}"')) == [("a", 3), ("b", 4)]


def test_a_table_that_does_not_fit_is_told_before_anything_runs(server, table, tmp_path):
    server.execute(f'CREATE TABLE "{table}" (other int)')
    flow = copying(server, table, 10)
    with pytest.raises((InputError, RunError), match="other columns"):
        engine.run(flow)
    with pytest.raises((InputError, RunError), match="other columns"):
        engine.run(flow, checkpoint=tmp_path / "checkpoint")
    with pytest.raises(FlowError, match="postgresql://"):
        io.Postgres("mysql://host/base", "t")
    with pytest.raises(FlowError, match="order='id'"):
        io.Postgres(server.url, table).open(pytest.fail)


@pytest.mark.parametrize("key", [(), "n"])
def test_a_flow_that_is_killed_has_every_record_in_the_table_once(server, table, tmp_path, key):
    count = 20_000
    kills = killed_until(
        None,
        lambda: engine.run(copying(server, table, count, key=key), checkpoint=tmp_path / "checkpoint", every="20 ms"),
        ends=True,
    )
    assert kills
    rows = server.rows(f'SELECT n, half, k FROM "{table}" ORDER BY n')
    assert rows == [(n, n / 2, n % 7) for n in range(count)]


def test_a_part_whose_commit_was_answered_to_nobody_is_not_there_twice(server, table, tmp_path):
    if (child := os.fork()) == 0:
        written = files.replace_whole

        def replace_whole(path, data):  # the last moment at which nobody here knows that the server has it
            if path.name == "delivered":
                os.kill(os.getpid(), signal.SIGKILL)
            written(path, data)

        outbox.__dict__["replace_whole"] = replace_whole
        engine.run(copying(server, table, 500), checkpoint=tmp_path / "checkpoint")
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert server.rows(f'SELECT count(*) FROM "{table}"') == [(500,)]
    engine.run(copying(server, table, 500), checkpoint=tmp_path / "checkpoint")
    assert server.rows(f'SELECT count(*) FROM "{table}"') == [(500,)]


def test_while_the_server_is_away_records_wait_on_disk(tmp_path):
    server = Postgresql().start()
    try:
        flow = copying(server, "t", 3_000)
        server.stop()
        report = engine.run(flow, checkpoint=tmp_path / "checkpoint", every="20 ms")
        assert report.dead_letters == 0
        assert report.extra["sinks"]["out"]["waiting"] == 3_000
        server.start()
        report = engine.run(flow, checkpoint=tmp_path / "checkpoint")
        assert report.extra["sinks"]["out"]["waiting"] == 0
        assert server.rows("SELECT count(*), count(DISTINCT n) FROM t") == [(3_000, 3_000)]
    finally:
        server.remove()


def test_a_growing_table_is_followed_and_gone_on_with(server, table, tmp_path):
    server.execute(
        f'CREATE TABLE "{table}" (id bigserial, x int)', f'INSERT INTO "{table}" (x) SELECT generate_series(0, 999)'
    )
    flow = Flow("following")
    source = io.Postgres(server.url, table, order="id", follow=True, poll="20 ms")
    flow.read("in", source).write("out", io.JsonLines(tmp_path / "out.jsonl"))
    for start, end in ((0, 1000), (1000, 1500)):
        if start:
            server.execute(f'INSERT INTO "{table}" (x) SELECT generate_series({start}, {end - 1})')
        ran_until(flow, end - start, checkpoint=tmp_path / "checkpoint")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert lines == [f'{{"id":{n + 1},"x":{n}}}' for n in range(1500)]
