"""Iceberg tables on Spark, each micro-batch once, read back by pyiceberg itself."""

import pytest

from headwater import Flow, col, io
from headwater import spark as on_spark
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError
from headwater.io import files
from headwater.io.transactions import outbox
from headwater.spark.sinks import guarantee, open_sink
from killed import kills_itself
from lake import TABLE

SCHEMA = {"n": int, "city": str, "at": "time"}


def test_a_micro_batch_is_in_an_iceberg_table_once_whenever_its_driver_is_killed(lake, tmp_path):
    import os

    schema = Schema.of({"n": int})
    flow = Flow("f")
    flow.read("in", io.Items([], schema)).write("out", io.Iceberg(TABLE, catalog=lake.properties))
    step = flow.steps["out"]
    assert guarantee(step) == "exactly once"

    def write(number):
        sink = open_sink(step, tmp_path / "checkpoint")
        assert sink.committed < number
        sink.rollback()
        sink.write(Batch.of({"n": [number]}, schema))
        sink.commit(number)
        sink.close()

    def write_and_die(number):
        written = files.replace_whole

        def replace_whole(path, data):
            if path.name == "delivered":
                os.kill(os.getpid(), 9)
            written(path, data)

        outbox.__dict__["replace_whole"] = replace_whole
        write(number)

    write(0)
    kills_itself(lambda: write_and_die(1))
    assert lake.column("n") == [0, 1]
    sink = open_sink(step, tmp_path / "checkpoint")
    assert sink.committed == 1
    sink.close()  # which delivers what it does not know to be there
    write(2)
    assert lake.column("n") == [0, 1, 2]
    assert [part for _, part, _ in lake.parts()] == [0, 1, 2]


def test_a_table_goes_round_through_flows_on_spark(spark, lake, tmp_path):
    lake.properties["token"] = "s3cr:et"
    rows = [{"n": n, "city": f"c {n % 3}", "at": n * 1_000_000} for n in range(400)]
    flow = Flow("writing")
    flow.read("r", io.Items(rows, SCHEMA)).write("out", io.Iceberg(TABLE, catalog=lake.properties, by="city"))
    on_spark.run(flow, checkpoint=tmp_path / "first")
    assert lake.column("n") == list(range(400))
    flow = Flow("reading")
    read = flow.read("r", io.Iceberg(TABLE, catalog=lake.properties)).filter("even", col.n % 2 == 0)
    read.write("out", io.Iceberg("plant.even", catalog=lake.properties))
    on_spark.run(flow, checkpoint=tmp_path / "second")
    found = lake.table("plant.even").scan().to_arrow().sort_by("n").to_pylist()
    assert [(row["n"], row["city"]) for row in found] == [(n, f"c {n % 3}") for n in range(0, 400, 2)]
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]  # checkpoints, too
    assert not any(b"s3cr:et" in path.read_bytes() for path in kept)


def test_the_form_of_a_table_at_a_url_says_what_to_use_instead():
    with pytest.raises(FlowError, match=r"io\.Iceberg"):
        io.SparkTable("a/b", form="iceberg")
