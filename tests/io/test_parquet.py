from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.ranges import RangeRequest, Sizes
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


@pytest.mark.parametrize(
    ("values", "kind", "shown"),
    [
        ([1, 2**63, 3, 2**64 - 1], pa.uint64(), "n: 9223372036854775808"),
        ([1_000, 2**62, 3_000, -(2**62)], pa.timestamp("ms"), "n: 4611686018427387904"),
    ],
)
def test_a_row_whose_value_fits_no_column_of_ours_is_rejected_and_no_other_number(tmp_path, values, kind, shown):
    pq.write_table(
        pa.table({"n": pa.array(values, pa.int64() if kind.id != pa.uint64().id else kind).cast(kind)}),
        tmp_path / "in.parquet",
    )
    source, rejected, found = Parquet(tmp_path / "in.parquet"), [], []
    reader = source.open(lambda text, why: rejected.append((text, why)))
    while (batch := reader.read(10, 1)) is not None:
        found += [(reader.position, value) for value in batch["n"].tolist()]
    reader.close()
    assert [position for position, _ in found] == [1, 3]
    assert reader.position == 4
    assert rejected[0][0] == shown
    assert all("does not fit" in why for _, why in rejected)
    ranges = source.ranges(RangeRequest(Sizes(parallel=2)))
    again: list[str] = []
    parts = [
        [len(b) for b in ranges.batches(piece, lambda text, why: again.append(text))] for piece in ((0, 2), (2, 4))
    ]
    assert [sum(part) for part in parts] == [1, 1]
    assert again == [text for text, _ in rejected]


def test_moments_in_nanoseconds_go_down_to_the_microsecond_as_text_does(tmp_path):
    values = pa.array([-1, -1000, 999, 1001, None], pa.int64()).cast(pa.timestamp("ns", "Europe/Berlin"))
    pq.write_table(pa.table({"n": values, "m": values.dictionary_encode()}), tmp_path / "in.parquet")
    rows = everything(tmp_path / "in.parquet")
    assert [row["n"] for row in rows] == [-1, -1, 0, 1, None]
    assert [row["m"] for row in rows] == [-1, -1, 0, 1, None]


def test_a_damaged_file_is_an_error(tmp_path):
    (tmp_path / "in.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="no Parquet file, or a damaged one"):
        _ = Parquet(tmp_path / "in.parquet").schema


def test_columns_of_one_name_are_an_error_that_names_the_file(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "in.parquet")
    with pytest.raises(InputError, match=r"cannot read .*in.parquet: columns 'a' are there more than once"):
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
