"""Iceberg: a table of a catalog, to add records to or to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import DeliverySemantics, Ledger, Reject, Resume, Transaction
from headwater.flow.identity import Identity
from headwater.flow.ranges import RangeRequest, Ranges
from headwater.io.urls import without_password

if TYPE_CHECKING:
    from headwater.io.iceberg.reader import IcebergReader
    from headwater.io.iceberg.writer import IcebergWriter


class Iceberg:
    """A table such as `plant.levels`, to add records to or to read; needs the extra `headwater[iceberg]`.

    `catalog` is the name of one in pyiceberg's own configuration (`~/.pyiceberg.yaml`, or the environment), or its
    properties, such as `{"type": "sql", "uri": "sqlite:///lake/catalog.db", "warehouse": "lake"}`, with `name` for one that
    is not called `default`.

    Writing: a table that is not there is made, its namespace too, with the partitions of `by`: columns, or their
    `year(at)`, `month(at)`, `day(at)` or `hour(at)`. One that is there must have the columns of the records. With a
    checkpoint, what came between two of them is one snapshot, whose summary has its number, so that each record is there
    once; while the catalog is away records wait beside the checkpoint.

    Reading begins with all that the table has, or had at `snapshot`, or with what was added after the snapshot `since`; with
    `follow` it goes on with what is added later, and looks every `poll`.
    """

    resume: Resume = "position"
    delivery: DeliverySemantics = "transactional"
    remote = True

    def __init__(
        self,
        table: str,
        schema: Fields | None = None,
        *,
        catalog: str | Mapping[str, str] = "default",
        by: str | Sequence[str] = (),
        snapshot: int | None = None,
        since: int | None = None,
        follow: bool = False,
        poll: Duration = "1 s",
    ) -> None:
        self.table = table
        if not all(self.name) or len(self.name) < 2:
            raise FlowError(f"an Iceberg table has a namespace and a name, such as 'plant.levels'; got {table!r}")
        if snapshot is not None and since is not None:
            raise FlowError(
                f"{table} is read as it was at a snapshot, or what was added since one: give snapshot or since, not both"
            )
        if not catalog:
            raise FlowError(
                f"the catalog of {table} has no properties; expected its name, or such as uri and warehouse"
            )
        properties = (
            {"name": catalog} if isinstance(catalog, str) else {key: str(value) for key, value in catalog.items()}
        )
        self.catalog = properties.pop("name", "default")
        self.properties = properties
        self.by = (by,) if isinstance(by, str) else tuple(by)
        self.snapshot, self.since, self.follow, self.poll_s = snapshot, since, follow, microseconds(poll) / 1e6
        self._schema = None if schema is None else Schema.of(schema)

    @property
    def name(self) -> tuple[str, ...]:
        """Its namespace and name."""
        return tuple(self.table.split("."))

    @property
    def schema(self) -> Schema:
        """The columns, as given or as the table has them."""
        if self._schema is None:
            from headwater.io.arrow import schema_of
            from headwater.io.iceberg.session import Session

            with Session(self) as session:
                self._schema = schema_of(session.table("read").schema().as_arrow())
        return self._schema

    @overload
    def open(self, reject_or_schema: Reject, position: Any = None) -> IcebergReader: ...
    @overload
    def open(self, reject_or_schema: Schema) -> IcebergWriter: ...
    def open(self, reject_or_schema: Reject | Schema, position: Any = None) -> IcebergReader | IcebergWriter:
        """Start reading, behind the place that `position` says; with a schema instead, start writing."""
        _check_library()
        from headwater.io.iceberg.reader import IcebergReader
        from headwater.io.iceberg.writer import IcebergWriter

        if isinstance(reject_or_schema, Schema):
            return IcebergWriter(self, reject_or_schema)
        return IcebergReader(self, reject_or_schema, position)

    def ranges(self, request: RangeRequest) -> Ranges:
        """Return the table by its files."""
        _check_library()
        from headwater.io.iceberg.ranges import IcebergRanges

        return IcebergRanges(self, request)

    def transaction(self, schema: Schema, ledger: Ledger) -> Transaction:
        """Start writing in parts, each of which is one snapshot with its number, as soon as the catalog is there."""
        _check_library()
        from headwater.io.iceberg.uplink import IcebergUplink
        from headwater.io.transactions.outbox import Outbox

        return Outbox(self, IcebergUplink(self, schema), ledger)

    def check_write(self, schema: Schema) -> None:
        """Raise what is wrong with `by`, for a table that would be made."""
        from headwater.io.iceberg.session import partitions

        partitions(self, schema)

    @property
    def identity(self) -> Identity:
        """The table, its catalog, and where reading begins."""
        since = {} if self.since is None else {"since": str(self.since)}
        return {"table": self.table, "catalog": self.place, **since}

    @property
    def place(self) -> str:
        """The catalog, as may be shown: where it is, or its name."""
        return without_password(self.properties["uri"]) if "uri" in self.properties else self.catalog

    def __str__(self) -> str:
        return f"{self.table} in {self.place}"


def _check_library() -> None:
    """Raise FlowError with the extra to install, before anything else asks for the library."""
    import headwater.io.iceberg.session  # noqa: F401
