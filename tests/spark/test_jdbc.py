"""A table of a database as a source: Derby, which comes with Spark, stands for all databases."""

import json

import pytest

from headwater import Flow, io
from headwater import spark as on_spark
from headwater.errors import FlowError, InputError, RunError
from headwater.spark.sources import jdbc

SCHEMA = {"n": int, "city": str, "x": float}


@pytest.fixture
def base(spark, tmp_path):
    """The URL of a database, and what adds rows to its table."""
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url = f"jdbc:derby:{tmp_path}/base;create=true"

    def add(numbers):
        rows = [(n, f"c{n % 3}", None if n % 5 == 0 else n / 2) for n in numbers]
        spark.createDataFrame(rows, "n bigint, city string, x double").write.jdbc(url, "readings", mode="append")

    return url, add


def reading(url, out, **options):
    flow = Flow("reading")
    flow.read("rows", io.Jdbc(url, "readings", schema=SCHEMA, order_by="n", **options)).write("out", out)
    return flow


def test_rows_that_come_later_are_read_and_a_later_run_goes_on_behind_the_last(base, tmp_path, monkeypatch):
    url, add = base
    monkeypatch.setattr(jdbc, "_AT_ONCE", 7)  # several answers
    monkeypatch.setattr("headwater.io.receiving.receiver._RECORDS", 7)
    add(reversed(range(10)))
    out = io.JsonLines(tmp_path / "out.jsonl")
    flow = reading(url, out, follow=True, every="50 ms")
    running = on_spark.start(flow, checkpoint=tmp_path / "kept here")
    try:
        while running.sample().records_out.get("out", 0) < 10 and running.wait(0.02) is None:
            pass
        add(range(10, 15))
        while running.sample().records_out.get("out", 0) < 15 and running.wait(0.02) is None:
            pass
    finally:
        running.stop()
        running.wait()
    add(range(15, 20))
    assert on_spark.run(reading(url, out), checkpoint=tmp_path / "kept here").last.records_in == 5
    rows = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert sorted((row["n"], row["city"], row["x"]) for row in rows) == [
        (n, f"c{n % 3}", None if n % 5 == 0 else n / 2) for n in range(20)
    ]


def test_a_column_that_does_not_tell_rows_apart_is_refused(base, monkeypatch):
    url, add = base
    monkeypatch.setattr(jdbc, "_AT_ONCE", 7)
    add([3] * 8)
    reader = jdbc.JdbcRows(io.Jdbc(url, "readings", schema=SCHEMA, order_by="n")).open(lambda text, error: None)
    with pytest.raises(InputError, match=r"column 'n', by which it is read, is 3 in more than 7 rows"):
        reader.read(7, 0)


def test_what_is_wrong_with_a_table_is_told(base):
    url, _ = base
    with pytest.raises(FlowError, match="takes the column that its rows are ordered by"):
        io.Jdbc(url, "readings", schema=SCHEMA).check_read()
    with pytest.raises(FlowError, match=r"order_by of .* is a column of whole numbers or text; 'x' is float"):
        io.Jdbc(url, "readings", schema=SCHEMA, order_by="x").check_read()
    with pytest.raises((InputError, RunError), match=r"cannot read jdbc:derby.* table readings"):
        on_spark.run(reading(url, io.Discard()))
