"""The table that TRAIN learns from: Parquet files, as ETL writes them, or CSV, as `--output` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import InputError
from headwater.spark.session import session
from headwater_bench.riot.datasets import Dataset
from headwater_bench.riot.parse import csv_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_table(path: Path) -> None:
    """Raise what is wrong with a table's name, before Spark has to be started."""
    if not path.exists():
        raise InputError(f"cannot learn from table {path}: there is no such folder or file")
    if not path.is_dir() and path.suffix not in (".parquet", ".csv"):
        raise InputError(
            f"cannot tell the form of table {str(path)!r}; expected a folder of Parquet files, as ETL writes it, "
            "or a file that ends in .parquet or .csv"
        )


def read_table(path: Path, dataset: Dataset) -> DataFrame:
    """Return a table; a CSV file has a line of names, or the columns of the benchmark's annotated rows."""
    from pyspark.errors import AnalysisException

    if path.suffix == ".csv" and not path.is_dir():
        return _csv(path, dataset)
    try:
        return session().read.parquet(_url(path))
    except AnalysisException as error:
        raise InputError(f"cannot learn from table {path}: no such folder, or no Parquet file in it yet") from error


def _csv(path: Path, dataset: Dataset) -> DataFrame:
    with path.open() as lines:
        first = lines.readline().strip().split(",")
    if set(dataset.features) <= set(first):
        return _typed(session().read.csv(_url(path), header=True), dataset)
    names = csv_columns(dataset)
    if len(first) < len(names):
        raise InputError(
            f"cannot learn from {path}: its first line names no columns, and has {len(first)} cells where "
            f"{dataset.name}'s annotated rows have {len(names)}"
        )
    more = [f"more {number}" for number in range(len(first) - len(names))]  # such as labels
    schema = ", ".join(f"`{name}` string" for name in [*names, *more])
    return _typed(session().read.csv(_url(path), schema=schema), dataset)


def _typed(table: DataFrame, dataset: Dataset) -> DataFrame:
    from pyspark.sql import functions as F

    numbers = {name: F.col(name).cast("double") for name in dataset.features}
    moments = {"timestamp": F.col("timestamp").cast("long")} if "timestamp" in table.columns else {}
    return table.withColumns({**numbers, **moments})


def _url(path: Path) -> str:
    return path.absolute().as_uri()  # Java may have started elsewhere, and have another default file system
