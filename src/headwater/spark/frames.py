"""DataFrames as inputs of a flow: what their columns are here, and how their rows become the records of a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.data.batch import END, Batch
from headwater.data.schema import Fields, Schema, Type
from headwater.errors import FlowError, listed, suggestion
from headwater.flow.endpoints import Reader, Reject
from headwater.flow.flow import Flow
from headwater.flow.identity import Identity
from headwater.flow.steps import EventTime, Filter, Read, Select, Split, Union
from headwater.spark.envelope import ROW
from headwater.spark.titles import titled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.sources.data_source import Prefix

#: what Spark's types are in a batch; a number in brackets, as in decimal(10,2), is left out
_TYPES: dict[str, Type] = {
    "boolean": "bool",
    "tinyint": "int", "smallint": "int", "int": "int", "bigint": "int",
    "float": "float32", "double": "float", "decimal": "float",
    "string": "text", "char": "text", "varchar": "text",
    "timestamp": "time", "timestamp_ntz": "time", "date": "time",
    "array": "any", "struct": "any",
}  # fmt: skip
#: what a column of another type is read as, where nothing is lost by it
_WIDENED: frozenset[tuple[Type, Type]] = frozenset({("int", "float"), ("float32", "float"), ("int", "time")})
#: what Spark calls the types of columns that leave a flow; `any` is JSON text
SQL: dict[Type, str] = {
    "bool": "boolean", "int": "bigint", "float": "double", "float32": "float", "text": "string", "time": "timestamp",
    "any": "string",
}  # fmt: skip
_PART = "_headwater_part"
LAST = 2**20  #: the number of the piece that says that all is over: behind every part of a table


class Frame:
    """A DataFrame of Spark's as a source of a flow; its columns are the schema, unless some of them are named.

    A timestamp without a zone counts as UTC, a date as its midnight; arrays and structs come as Python objects.
    """

    def __init__(self, rows: DataFrame, schema: Fields | None = None) -> None:
        self.rows = rows
        self._schema = _schema_of(rows, "a DataFrame") if schema is None else Schema.of(schema)
        check_columns(rows, self._schema, "a DataFrame")

    @property
    def schema(self) -> Schema:
        """The columns of its records."""
        return self._schema

    @property
    def identity(self) -> Identity:
        """Its columns: what else it is, Spark's own offsets know."""
        return {"columns": str(self._schema)}

    def open(self, reject: Reject) -> Reader:
        """Refuse: only Spark can read it."""
        raise FlowError("a DataFrame is read on Spark alone; use spark.apply or spark.run")

    def __str__(self) -> str:
        return f"{'a streaming' if self.rows.isStreaming else 'a'} DataFrame of {listed(self._schema)}"


def with_inputs(flow: Flow, inputs: DataFrame | Mapping[str, DataFrame]) -> Flow:
    """Return the flow with DataFrames in place of sources, by name; of a single source, the name is not needed."""
    kinds = {}
    for name, rows in by_source(flow, inputs, _which_is_which).items():
        what = f"input {name!r} of flow {flow.name!r}"
        schema = flow.steps[name].outputs["out"]
        check_columns(rows, schema, what)
        kinds[name] = Read(Frame(rows, schema))
    return flow.replaced(kinds)


def _which_is_which(names: Sequence[str]) -> str:
    return f"say which DataFrame is which, as {{{', '.join(f'{name!r}: …' for name in names)}}}"


def by_source(flow: Flow, tables: Any, hint: Callable[[Sequence[str]], str]) -> dict[str, Any]:
    """Return what is given for sources by their names; of a single source, the name is not needed."""
    names = [step.name for step in flow.steps.values() if step.is_source]
    if not isinstance(tables, Mapping):
        if len(names) != 1:
            raise FlowError(f"flow {flow.name!r} has the sources {listed(names)}: {hint(names)}")
        return {names[0]: tables}
    for name in tables:
        flow.check_source(name)
    return dict(tables)


def check_columns(rows: DataFrame, schema: Schema, what: str) -> None:
    """Raise if a DataFrame does not have the columns of a schema, or in other types."""
    _check_frame(rows, what)
    kinds = dict(rows.dtypes)
    for name, kind in schema.fields:
        if name not in kinds:
            raise FlowError(f"{what} has no column {name!r}; columns are {listed(kinds)}{suggestion(name, kinds)}")
        has = _kind(kinds[name])
        if has != kind and (has, kind) not in _WIDENED and kind != "any":
            raise FlowError(
                f"{what}: column {name!r} is {kinds[name]} in the DataFrame, and {kind} is expected; "
                f"cast it: .withColumn({name!r}, col({name!r}).cast({SQL[kind]!r}))"
            )


def _check_frame(rows: object, what: str) -> None:
    if not hasattr(rows, "isStreaming"):
        package = type(rows).__module__.partition(".")[0]
        text = type(rows).__name__ if package == "builtins" else f"{type(rows).__name__} of {package}"
        mend = "; make one of it: session.createDataFrame(…)" if package in ("pandas", "pyarrow") else ""
        raise FlowError(f"{what} must be a DataFrame of Spark's; got {text}{mend}")


def _schema_of(rows: DataFrame, what: str) -> Schema:
    _check_frame(rows, what)
    kinds = {name: _kind(kind) for name, kind in rows.dtypes}
    unknown = {name: kind for name, kind in rows.dtypes if kinds[name] is None}
    if unknown:
        names = ", ".join(f"{name} ({kind})" for name, kind in unknown.items())
        raise FlowError(
            f"{what} has columns of types that a flow does not know: {names}; cast them, or select the others"
        )
    twice = {name for name in rows.columns if rows.columns.count(name) > 1}
    if twice:
        raise FlowError(f"{what} has more than one column {listed(twice)}; rename them")
    return Schema.of(kinds)


def _kind(kind: str) -> Type | None:
    return _TYPES.get(kind.split("(")[0].split("<")[0])


def rows_of_frame(rows: DataFrame, schema: Schema, prefix: Prefix, order: str | None = None) -> DataFrame:
    """Return the rows of a stage that reads a DataFrame of some schema, sorted by a column if one is said."""
    from pyspark.sql import functions as F

    rows = rows if order is None else rows.orderBy(named(order))
    # its own partitions' numbers: those of tasks would count what it stands beside in a union
    placed = rows.select(*map(named, schema), F.spark_partition_id().alias(_PART))
    return placed.mapInArrow(titled(_reader(schema, prefix), getattr(prefix, "title", "")), ROW)


def end_of(spark: SparkSession, prefix: Prefix) -> DataFrame:
    """Return the rows that say that a table has come to its end."""

    def end(tables: Iterator[Any]) -> Iterator[Any]:
        from headwater.spark.sources.data_source import in_arrow

        for _ in tables:
            pass
        return in_arrow(prefix(LAST, iter([(0, Batch.of_watermark(END))])))

    return spark.range(0, 1, 1, 1).mapInArrow(end, ROW)


def _reader(schema: Schema, prefix: Prefix) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def read(tables: Iterator[Any]) -> Iterator[Any]:
        from headwater.io.arrow import batch_of
        from headwater.spark.sources.data_source import in_arrow

        first = next((table for table in tables if table.num_rows), None)
        if first is None:
            return in_arrow(iter(()))
        number = first.column(_PART)[0].as_py()

        def put_out() -> Iterator[tuple[int, Batch]]:
            yield 0, batch_of(first, schema)
            for table in tables:
                if table.num_rows:
                    yield 0, batch_of(table, schema)

        return in_arrow(prefix(number, put_out()))

    return read


def named(column: str) -> Any:
    """Return a column by its name, whatever characters that has."""
    from pyspark.sql import functions as F

    return F.col("`" + column.replace("`", "``") + "`")


def event_time_of(flow: Flow, source: str) -> str | None:
    """Return the column of a source that a flow reads event time from, as it is in the source; None without any."""
    waiting = [source]
    while waiting:
        for step in flow.readers_of(waiting.pop()):
            match step.kind:
                case EventTime(column) if column in flow.steps[source].outputs["out"]:
                    return column
                case Filter() | Split() | Union():
                    waiting.append(step.name)
                case Select(columns, True) if not {name for name, _ in columns} & set(
                    flow.steps[source].outputs["out"]
                ):
                    waiting.append(step.name)
    return None
