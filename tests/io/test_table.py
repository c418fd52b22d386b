"""Tables: what is written is what Arrow reads back, in the folders it belongs to."""

import pyarrow.dataset as ds
import pytest

from headwater import Batch, Flow, Schema, engine, io
from headwater.errors import FlowError, InputError, RunError
from headwater.io import buffered_writer

SCHEMA = Schema.of({"city": str, "day": int, "x": float})
ROWS = [{"city": c, "day": d, "x": d + 0.5} for d in range(3) for c in ("rome", "são/paulo", None, "oslo")]


def read(path):
    table = ds.dataset(path, partitioning=ds.HivePartitioning.discover(infer_dictionary=False))
    return sorted((str(r["city"]), r["day"], r["x"]) for r in table.to_table().to_pylist())


def test_a_table_lies_in_folders_by_its_columns(tmp_path):
    flow = Flow("table")
    flow.read("rows", io.Items(ROWS, SCHEMA)).write("table", io.ParquetTable(tmp_path / "t", by=("city", "day")))
    engine.run(flow)
    assert read(tmp_path / "t") == sorted((str(row["city"]), row["day"], row["x"]) for row in ROWS)
    assert (tmp_path / "t" / "city=rome" / "day=2").is_dir()
    assert (tmp_path / "t" / "city=são%2Fpaulo").is_dir()


def test_a_table_grows_with_every_run(tmp_path):
    for _ in range(2):
        writer = io.ParquetTable(tmp_path).open(SCHEMA)
        writer.write(Batch.of_rows(ROWS, SCHEMA))
        writer.close()
    assert len(read(tmp_path)) == 2 * len(ROWS)


def test_a_column_of_too_many_values_makes_no_folders(tmp_path):
    with pytest.raises(FlowError, match="too many"):
        io.ParquetTable(tmp_path, by="x").open(SCHEMA)
    with pytest.raises(FlowError, match="'town'"):
        io.ParquetTable(tmp_path, by="town").open(SCHEMA)


def test_every_value_has_a_folder_of_its_own_and_comes_back(tmp_path):
    """All but the empty text, which Spark reads in no folder: it comes back as __EMPTY__."""
    values = [
        None,
        "",
        " ",
        "%",
        "%2F",
        "a/b",
        "a=b",
        "é",
        "日本",
        "..",
        "__EMPTY__",
        "__HIVE_DEFAULT_PARTITION__x",
        "\n",
    ]
    rows = [{"city": value, "day": n, "x": 0.5} for n, value in enumerate(values) for _ in range(2)]
    flow = Flow("table")
    flow.read("rows", io.Items(rows, SCHEMA)).write("table", io.ParquetTable(tmp_path / "t", by="city"))
    assert engine.run(flow).last.records_out["table"] == len(rows)
    folders = {path.parent.name for path in (tmp_path / "t").rglob("*.parquet")}
    assert len(folders) == len(values)
    assert {"city=__HIVE_DEFAULT_PARTITION__", "city=__EMPTY__"} <= folders
    found = ds.dataset(tmp_path / "t", partitioning="hive").to_table().sort_by("day").to_pylist()
    expected = {n: "__EMPTY__" if value == "" else value for n, value in enumerate(values)}
    assert [row["city"] for row in found] == [expected[row["day"]] for row in found]
    assert len(found) == len(rows)


def test_a_value_too_long_for_a_folder_costs_its_record_alone(tmp_path):
    """200,000 rows in the report that found this; the one long value took 65,000 others with it."""
    cities = [["oslo", "x" * 400, "/" * 90, "é" * 125, None][n % 5 if n % 1000 < 5 else 0] for n in range(70_000)]
    rows = [{"city": city, "day": n, "x": 0.5} for n, city in enumerate(cities)]
    flow, letters = Flow("table"), io.Collect()
    flow.read("rows", io.Items(rows, SCHEMA)).write("table", io.ParquetTable(tmp_path / "t", by=("city",)))
    flow.dead_letters.write("letters", letters)
    report = engine.run(flow)
    fits = [n for n, city in enumerate(cities) if city is None or city[0] not in "x/"]
    found = ds.dataset(tmp_path / "t", partitioning="hive").to_table()
    assert sorted(found["day"].to_pylist()) == fits
    assert report.last.records_out["table"] == len(fits)
    assert report.dead_letters == len(letters.records) == len(rows) - len(fits) == 140
    assert {letter["error"][-15:] for letter in letters.records} == {"at most 250 fit"}


def test_what_cannot_be_written_now_is_kept_and_written_later(tmp_path, monkeypatch):
    monkeypatch.setattr(buffered_writer, "_ROWS", 4)
    place = tmp_path / "t"
    writer = io.ParquetTable(place, by="city").open(SCHEMA)
    batch = Batch.of_rows(ROWS[:4], SCHEMA)
    writer.write(batch)
    (place / "city=oslo").write_text("in the way of a folder")
    for _ in range(2):
        with pytest.raises(InputError, match="cannot write"):
            writer.write(batch)
    assert list(place.rglob("*.parquet*")) == []  # all or none
    with pytest.raises(InputError, match="4 records are not in the table") as told:
        writer.close()
    assert told.value.records == 4
    (place / "city=oslo").unlink()
    writer.write(batch)
    writer.close()
    assert len(read(place)) == 8


def test_a_table_that_cannot_be_finished_is_no_success(tmp_path):
    place = tmp_path / "t"
    flow = Flow("table")
    flow.read("rows", io.Items(ROWS, SCHEMA)).write("table", io.ParquetTable(place, by="city"))
    place.mkdir()
    (place / "city=oslo").write_text("in the way of a folder")
    run = engine.start(flow)
    with pytest.raises(RunError, match=r"step 'table' could not finish: .*12 records are not in the table"):
        run.wait()
    document = run.report().to_json()
    assert (document["records_in"], document["records_out"]["table"], document["dead_letters"]) == (12, 0, 12)
