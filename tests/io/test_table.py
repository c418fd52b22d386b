"""Tables: what is written is what Arrow reads back, in the folders it belongs to."""

import pyarrow.dataset as ds
import pytest

from headwater import Batch, Flow, Schema, engine, io
from headwater.errors import FlowError

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
    assert (tmp_path / "t" / "city=são%2Fpaulo").is_dir() or (tmp_path / "t" / "city=s%C3%A3o%2Fpaulo").is_dir()


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
