import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st
from io_strategies import batches, names, same, values

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError, InputError
from headwater.io import Sqlite

SCHEMA = Schema.of({"id": str, "n": int})


def records(*pairs):
    return Batch.of({"id": [i for i, _ in pairs], "n": [n for _, n in pairs]}, SCHEMA)


def written(sink, batch, schema=SCHEMA):
    writer = sink.open(schema)
    writer.write(batch)
    writer.close()


def everything(source, reject=pytest.fail, position=None, limit=2):
    reader, rows = source.open(reject, position), []
    while (batch := reader.read(limit, 1)) is not None:
        rows += batch.rows()
    reader.close()
    return rows


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.db"


# SQLite tells no two columns apart by the case of their letters.
distinct = names.filter(lambda name: "\0" not in name and name == name.lower())


@given(batches({**values, "text": st.text("ab'\"é", max_size=5)}, names=distinct))
def test_records_come_back_as_they_were(tmp_path_factory, drawn):
    batch, schema = drawn
    path = tmp_path_factory.mktemp("sqlite") / "out.db"
    written(Sqlite(path, 'a "table"'), batch, schema)
    assert same(everything(Sqlite(path, 'a "table"', schema=schema)), batch.rows())


def test_a_record_of_the_same_key_replaces_the_old_one(path):
    sink = Sqlite(path, "t", key="id")
    written(sink, records(("a", 1), ("b", 2), ("a", 3)))
    written(sink, records(("b", 4)))
    assert everything(sink) == records(("a", 3), ("b", 4)).rows()


def test_a_table_of_nothing_but_its_key_keeps_each_once(path):
    schema = Schema.of({"id": str})
    sink = Sqlite(path, "t", key=["id"])
    written(sink, Batch.of({"id": ["a", "a", "b"]}, schema), schema)
    assert everything(sink) == [{"id": "a"}, {"id": "b"}]


def test_a_record_that_the_table_does_not_take_is_refused_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id TEXT, n INTEGER CHECK (n < 10))")
    connection.close()
    writer = Sqlite(path, "t").open(SCHEMA)
    refused = writer.write(records(("a", 1), ("b", 20), ("c", 3), ("d", 40), ("e", 5)))
    assert set(refused) == {1, 3}
    assert all("CHECK constraint failed" in reason for reason in refused.values())
    writer.close()
    assert everything(Sqlite(path, "t")) == records(("a", 1), ("c", 3), ("e", 5)).rows()


@pytest.mark.parametrize("key", ["id", "n"])
def test_a_record_without_its_key_is_refused_alone(path, key):
    schema = Schema.of({"id": str, "n": int})
    batch = Batch.of({"id": ["a", None, "c"], "n": [1, None, 3]}, schema)
    writer = Sqlite(path, "t", key=key).open(schema)
    assert set(writer.write(batch)) == {1}
    writer.close()
    assert everything(Sqlite(path, "t")) == records(("a", 1), ("c", 3)).rows()


def test_a_batch_is_written_whole_or_not_at_all(path):
    writer = Sqlite(path, "t").open(SCHEMA)
    writer.write(records(("a", 1)))
    with sqlite3.connect(path) as other:
        other.execute("DROP TABLE t")
    other.close()
    with pytest.raises(InputError, match=r"cannot write .*:t: no such table"):
        writer.write(records(("b", 2), ("c", 20)))
    writer.close()


def test_a_table_with_other_columns_is_refused_at_once(path):
    written(Sqlite(path, "t"), records(("a", 1)))
    with pytest.raises(InputError, match="other columns: use another table"):
        Sqlite(path, "t").open(Schema.of({"x": float}))


def test_a_query_is_read_in_chunks_and_from_a_position(path):
    written(Sqlite(path, "t"), records(*((f"s{n}", n) for n in range(10))))
    source = Sqlite(path, query="SELECT n, n * 0.5 AS half FROM t WHERE n >= 4 ORDER BY n")
    assert source.schema == Schema.of({"n": int, "half": float})
    assert [row["n"] for row in everything(source)] == [4, 5, 6, 7, 8, 9]
    reader = source.open(pytest.fail)
    reader.read(4, 1)
    assert everything(source, position=reader.position) == [{"n": 8, "half": 4.0}, {"n": 9, "half": 4.5}]
    reader.close()


def test_a_row_that_does_not_fit_is_rejected_with_its_number(path, rejected):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (n, at)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, 5), ("x", 6), (3, "later"), (None, "1970-01-01")])
    connection.close()
    rows = everything(Sqlite(path, "t", schema={"n": int, "at": "time"}), rejected)
    assert rows == [{"n": 1, "at": 5}, {"n": None, "at": 0}]
    assert [reason for _, reason in rejected] == [
        f"{path}:t row 2: column 'n': expected int, got str 'x'",
        f"{path}:t row 3: column 'at': expected time, got 'later'",
    ]


def test_a_full_disk_is_one_clear_error(path, file_limit):
    writer = Sqlite(path, "t").open(SCHEMA)
    with (
        file_limit(20_000),
        pytest.raises(InputError, match=r"cannot write .*out.db:t: (disk I/O|database or disk)"),
    ):
        writer.write(records(*(("x" * 100, n) for n in range(10_000))))
    writer.close()


def test_a_missing_file_table_or_column_is_named(path, tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*out.db: there is no such file"):
        _ = Sqlite(path, "t").schema
    written(Sqlite(path, "t"), records(("a", 1)))
    with pytest.raises(InputError, match="no such table: u"):
        _ = Sqlite(path, "u").schema
    with pytest.raises(InputError, match="no column 'num'"):
        Sqlite(path, "t", schema={"num": int}).open(pytest.fail)
    with pytest.raises(InputError, match="is its directory there"):
        Sqlite(tmp_path / "no" / "out.db", "t").open(SCHEMA)
    (tmp_path / "text.db").write_text("this is no database, though it is long enough to look like one" * 20)
    with pytest.raises(InputError, match="not a database"):
        Sqlite(tmp_path / "text.db", "t").open(SCHEMA)


def test_what_is_described_wrongly_is_refused(path):
    with pytest.raises(FlowError, match="a table or a query"):
        Sqlite(path)
    with pytest.raises(FlowError, match="a query cannot be written to"):
        Sqlite(path, query="SELECT 1").open(SCHEMA)
    with pytest.raises(FlowError, match="there is no column 'sensor'"):
        Sqlite(path, "t", key="sensor").open(SCHEMA)
    with pytest.raises(InputError, match="from position 'here'"):
        Sqlite(path, "t").open(pytest.fail, "here")
