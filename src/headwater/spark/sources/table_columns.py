"""Whether files have the columns that are read of them, in types that Spark reads exactly.

Spark makes a column that no file has of missing values, without a word, and breaks in the middle of a file at a type that it
does not read as another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.data.schema import Type
from headwater.errors import FlowError, listed, suggestion
from headwater.io.spark_table import SparkTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMS = ("parquet", "orc")  #: whose files say what columns they have
_FOLDER = ""  #: the type of a column that is in the names of folders: whatever is read of it
#: as what a column is read without loss, by what Arrow or Spark call its type
_READ: dict[Type, str] = {
    "bool": r"bool(ean)?",
    "int": r"u?int(8|16|32)|int64|tinyint|smallint|int|bigint",
    "float32": r"float",
    "float": r"float|double|int(8|16|32)?|tinyint|smallint",
    "text": r"(large_)?(string|binary)(_view)?|(var)?char\b.*|dictionary<values=(large_)?string.*",
    "time": r"timestamp.*",
}


def check_columns(source: SparkTable, columns: Mapping[str, str]) -> None:
    """Raise if a column is not among those of the files, by type, or cannot be read as the type that is asked for."""
    lower = {name.lower(): type_name for name, type_name in columns.items()}  # Spark does not look at the case, either
    for name, kind in source.schema.fields:
        type_name = columns.get(name, lower.get(name.lower()))
        if type_name is None:
            raise FlowError(
                f"{source} has no column {name!r}; columns are {listed(columns)}{suggestion(name, columns)}"
            )
        if type_name != _FOLDER and not re.fullmatch(_READ[kind], type_name):
            others = [other for other, types in _READ.items() if re.fullmatch(types, type_name)]
            mend = f"read it as {others[0]}, and cast it then" if others else "give the flow a DataFrame that casts it"
            raise FlowError(f"{source}: column {name!r} is {type_name} there, and cannot be read as {kind}; {mend}")


def columns_near(path: Path, source: SparkTable) -> dict[str, str]:
    """Return the columns of files of this machine, by type; of several files, of as many as it takes to find all."""
    columns: dict[str, str] = {}
    for file in _files(path):
        folders = file.relative_to(path).parts[:-1]
        there = {part.partition("=")[0]: _FOLDER for part in folders if "=" in part}
        columns = _columns_in(file, source.form) | columns | there
        if _has_all(columns, source):
            break
    return columns


def columns_by_spark(spark: SparkSession, source: SparkTable) -> dict[str, str]:
    """Return the columns of files anywhere, by type; none where there are no files yet, or Spark has something to say."""
    from pyspark.errors import PySparkException

    columns: dict[str, str] = {}
    try:
        for merged in ("false", "true"):  # of one file; only if need be of all
            reader = spark.read.format(source.form).options(**source.options, mergeSchema=merged)
            rows: Any = reader.load(source.url)
            folders = rows._jdf.queryExecution().analyzed().relation().partitionSchema().fieldNames()
            columns = dict(rows.dtypes) | dict.fromkeys(folders, _FOLDER)
            if _has_all(columns, source):
                break
    except PySparkException:  # which is told when they are read
        pass
    return columns


def _has_all(columns: Mapping[str, str], source: SparkTable) -> bool:
    return {name.lower() for name in source.schema} <= {name.lower() for name in columns}


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for each in path.rglob("*") if path.is_dir() else ():
        hidden = any(part.startswith(("_", ".")) for part in each.relative_to(path).parts)
        if not hidden and each.is_file():
            yield each


def _columns_in(file: Path, form: str) -> dict[str, str]:
    from headwater.io.arrow import ArrowInvalid, parquet

    try:
        if form == "parquet":
            schema = parquet().read_schema(file)
        else:
            from pyarrow import orc

            schema = orc.ORCFile(file).schema
    except (ArrowInvalid, OSError):
        return {}  # which is told when it is read
    return {field.name: str(field.type) for field in schema}
