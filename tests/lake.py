"""An Iceberg catalog of our own in a folder, and what pyiceberg itself finds there; skipped where that is missing."""

import os

import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install 'headwater[iceberg]'")

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.concurrent import ExecutorFactory

from headwater import io
from headwater.data.schema import Schema

TABLE = "plant.levels"
NUMBERS = Schema.of({"n": int})


class Lake:
    """A catalog in a file of SQLite, with its tables beside it."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Let the library's threads go, beside which a later test could fork no lanes."""
        pool, ExecutorFactory._instance = ExecutorFactory._instance, None
        if pool is not None and ExecutorFactory._instance_pid == os.getpid():
            pool.shutdown()

    def table(self, name=TABLE):
        """Return a table as the library has it."""
        return load_catalog("default", **self.properties).load_table(name)

    def make(self, columns, name=TABLE, **options):
        """Make a table of the library's own columns."""
        catalog = load_catalog("default", **self.properties)
        catalog.create_namespace_if_not_exists("plant")
        return catalog.create_table(name, columns, **options)

    def column(self, name, table=TABLE):
        """Return the values of a column, sorted."""
        return sorted(self.table(table).scan().to_arrow()[name].to_pylist())

    def parts(self, table=TABLE):
        """Return the writers and parts that snapshots say they are of, and how many records each has, oldest first."""
        said = [each.summary for each in self.table(table).snapshots()]
        return [(each["headwater.writer"], int(each["headwater.part"]), int(each["added-records"])) for each in said]


def levels(lake, schema=None, **options):
    """Return the table as a source or sink of ours."""
    return io.Iceberg(TABLE, schema, catalog=lake.properties, **options)


def added(lake, numbers):
    """Add numbers in a snapshot, and return which that is."""
    table = lake.table()
    table.append(pa.table({"n": pa.array(numbers, pa.int64())}))
    return table.current_snapshot().snapshot_id


def read_all(source, position=None, limit=7):
    """Return the numbers that a source has now, and the position behind them."""
    reader, found = source.open(pytest.fail, position), []
    while (batch := reader.read(limit, 0)) is not None and (batch.length or not source.follow):
        found += batch["n"].tolist()
    reader.close()
    return found, reader.position
