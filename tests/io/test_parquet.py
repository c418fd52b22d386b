from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.io import Parquet

SCHEMA = Schema.of({"n": int})


def numbered(start, stop):
    return Batch.of({"n": list(range(start, stop))}, SCHEMA)


def everything(path, limit=50_000):
    reader, rows = Parquet(path).open(pytest.fail), []
    while (batch := reader.read(limit, 1)) is not None:
        rows += batch.rows()
    reader.close()
    return rows


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path):
    writer = Parquet(tmp_path / "out.parquet").open(SCHEMA)
    writer.write(numbered(0, 10))
    assert not (tmp_path / "out.parquet").exists()
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]
    writer.close()


def test_records_are_gathered_into_row_groups(tmp_path):
    writer = Parquet(tmp_path / "out.parquet").open(SCHEMA)
    for start in range(0, 100_000, 1000):
        writer.write(numbered(start, start + 1000))
    writer.close()
    file = pq.ParquetFile(tmp_path / "out.parquet")
    assert [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)] == [65536, 464, 34000]
    file.close()
    assert everything(tmp_path / "out.parquet") == numbered(0, 100_000).rows()


def test_reading_goes_on_in_the_middle_of_a_row_group(tmp_path):
    writer = Parquet(tmp_path / "out.parquet").open(SCHEMA)
    for start in range(0, 200_000, 70_000):
        writer.write(numbered(start, start + 70_000))
    writer.close()
    for position in (0, 1, 65_536, 70_000, 150_001, 210_000):
        reader = Parquet(tmp_path / "out.parquet").open(pytest.fail, position)
        batch = reader.read(5, 1)
        reader.close()
        assert (batch["n"].tolist() if batch else []) == list(range(position, min(position + 5, 210_000)))


def test_a_file_of_others_is_read_in_our_types(tmp_path):
    table = pa.table(
        {
            "i": pa.array([1, None], pa.uint8()),
            "d": pa.array([Decimal("1.5"), None]),
            "day": pa.array([date(1970, 1, 2), None]),
            "ns": pa.array([datetime(1970, 1, 1, 0, 0, 1), None], pa.timestamp("ns")),
            "word": pa.array(["a", None]).dictionary_encode(),
            "list": pa.array([[1, 2], None]),
            "when": pa.array([datetime(1970, 1, 1, tzinfo=UTC), None]),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    first, second = everything(tmp_path / "in.parquet")
    assert first == {
        "i": 1, "d": 1.5, "day": 86_400_000_000, "ns": 1_000_000, "word": "a", "list": [1, 2], "when": 0
    }  # fmt: skip
    assert set(second.values()) == {None}


def test_a_number_beyond_64_bits_is_an_error_and_not_another_number(tmp_path):
    pq.write_table(pa.table({"n": pa.array([2**63], pa.uint64())}), tmp_path / "in.parquet")
    with pytest.raises(InputError, match=r"cannot read .*in.parquet: a value does not fit"):
        everything(tmp_path / "in.parquet")


def test_a_damaged_file_is_an_error(tmp_path):
    (tmp_path / "in.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="no Parquet file, or a damaged one"):
        _ = Parquet(tmp_path / "in.parquet").schema


def test_a_full_disk_leaves_no_half_file(tmp_path, file_limit):
    writer = Parquet(tmp_path / "out.parquet").open(SCHEMA)
    writer.write(numbered(0, 1000))
    with (
        file_limit(100),
        pytest.raises(InputError, match=r"cannot write .*out.parquet: the file is as large"),
    ):
        writer.close()
    assert list(tmp_path.iterdir()) == []
