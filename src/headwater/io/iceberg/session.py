"""A catalog that is asked for a table, and what its errors mean to us: a password is in none of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.data.schema import Schema, Type
from headwater.errors import FlowError, HeadwaterError, InputError, NoRoomError, listed, suggestion
from headwater.io.files import is_full
from headwater.io.urls import secrets_in, without_secrets

try:
    from pyiceberg import exceptions as said_by_catalogs
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table import Table
    from pyiceberg.transforms import parse_transform
    from pyiceberg.types import (
        BooleanType,
        DoubleType,
        FloatType,
        LongType,
        NestedField,
        PrimitiveType,
        StringType,
        TimestamptzType,
    )
    from pyiceberg.utils.config import Config
except ImportError as missing:
    raise FlowError(f"Iceberg tables need pyiceberg: pip install 'headwater[iceberg]' ({missing})") from missing

if TYPE_CHECKING:
    from headwater.io.iceberg.endpoint import Iceberg

log = logging.getLogger(__name__)

#: properties that hide nothing; all others may be a password, a token or a key
_PLAIN = {"type", "warehouse", "prefix", "py-io-impl", "py-catalog-impl", "s3.endpoint", "s3.region", "uri"}
_TYPES: dict[Type, PrimitiveType] = {
    "bool": BooleanType(),
    "int": LongType(),
    "float": DoubleType(),
    "float32": FloatType(),
    "text": StringType(),
    "time": TimestamptzType(),
    "any": StringType(),
}
_FIRST_PARTITION = 1000  #: the number of the first field by which a table is cut, by Iceberg's rules
_BY = re.compile(r"(?:(?P<transform>[a-z]+)\()?(?P<column>[^()]+)\)?")
_TRANSFORMS = ("year", "month", "day", "hour")
#: things that somebody else may make at the same moment: a catalog's own tables, a namespace and a table
_MOST_MADE = 3
#: what a catalog or storage says that may be there again later
_AWAY = (
    said_by_catalogs.ServiceUnavailableError,
    said_by_catalogs.ServerError,
    said_by_catalogs.TooManyRequestsError,
    said_by_catalogs.CommitStateUnknownException,
    said_by_catalogs.CommitFailedException,
)


class Session:
    """A catalog, opened when it is needed and again after it went wrong; only one that `may_make` leaves anything behind."""

    def __init__(self, endpoint: Iceberg, *, may_make: bool = False) -> None:
        self._endpoint, self._may_make = endpoint, may_make
        self._catalog: Catalog | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def asking(self, doing: str) -> Iterator[Catalog]:
        """Give the catalog; what goes wrong is told as InputError, without secrets, and the catalog is opened anew."""
        try:
            if self._catalog is None:
                self._catalog = self._open()
            yield self._catalog
        except HeadwaterError:
            raise
        except Exception as error:  # of the library, of a database's driver, of a server or of a storage
            self.close()
            kind = NoRoomError if is_full(error) or "disk is full" in str(error) else InputError  # of SQLite's, too
            raise kind(f"cannot {doing} {self._endpoint}: {self._explained(error)}") from None

    def table(self, doing: str) -> Table:
        """Return the table as it is now; raises InputError if there is none."""
        with self.asking(doing) as catalog:
            try:
                return catalog.load_table(self._endpoint.name)
            except (said_by_catalogs.NoSuchTableError, said_by_catalogs.NoSuchNamespaceError):
                raise InputError(f"cannot {doing} {self._endpoint}: {self._missing(catalog)}") from None

    def table_for(self, schema: Schema) -> Table:
        """Return the table for records of these columns; one that is not there is made."""
        for _ in range(_MOST_MADE):
            try:
                return self._found_or_made(schema)
            except InputError as error:
                if not _was_made_meanwhile(error):
                    raise
        return self._found_or_made(schema)

    def close(self) -> None:
        """Let the catalog go."""
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            with suppress(Exception):  # it is done with
                catalog.close()

    def _open(self) -> Catalog:
        endpoint, configured = self._endpoint, self._properties()
        uri = str(configured.get("uri", ""))
        file = _file_of(uri)
        is_new = file is not None and not file.exists()
        if is_new and not self._may_make:
            raise InputError(
                f"cannot read {endpoint}: there is no file {file}, which would be its catalog; is the path right? "
                "sqlite:///lake/catalog.db begins at the folder of the process, sqlite:////lake/catalog.db does not"
            )
        options = dict(endpoint.properties)
        if not self._may_make and (configured.get("type") == "sql" or uri.startswith(("sqlite", "postgresql"))):
            options["init_catalog_tables"] = "false"  # a database of somebody's own stays as it is
        catalog = load_catalog(endpoint.catalog, **options)
        if is_new:
            log.warning("catalog %s was not there, and is made: %s", endpoint.place, file)
        return catalog

    def _properties(self) -> dict[str, Any]:
        """Return the properties of the catalog, configured and given."""
        return {**(Config().get_catalog_config(self._endpoint.catalog) or {}), **self._endpoint.properties}

    def _found_or_made(self, schema: Schema) -> Table:
        with self.asking("write") as catalog:
            if not catalog.table_exists(self._endpoint.name):
                self._make(catalog, schema)
            table = catalog.load_table(self._endpoint.name)
        check_columns(self._endpoint, table, schema)
        return table

    def _make(self, catalog: Catalog, schema: Schema) -> None:
        by = partitions(self._endpoint, schema)
        catalog.create_namespace_if_not_exists(self._endpoint.name[:-1])
        with suppress(said_by_catalogs.TableAlreadyExistsError):  # by somebody else, meanwhile
            catalog.create_table(self._endpoint.name, columns_of(schema), partition_spec=PartitionSpec(*by))
            log.info("table %s was not there, and is made", self._endpoint)

    def _missing(self, catalog: Catalog) -> str:
        *namespace, name = self._endpoint.name
        there: list[str] = []
        with suppress(Exception):  # a server may not let everybody see what it has
            there = [table[-1] for table in catalog.list_tables(tuple(namespace))]
        hint = f"; tables of {'.'.join(namespace)} are {listed(there)}{suggestion(name, there)}" if there else ""
        return f"there is no such table{hint or '; is the name right, and the catalog?'}"

    def _explained(self, error: Exception) -> str:
        endpoint = self._endpoint
        if "URI missing" in str(error):
            return _nowhere(endpoint)
        lines = str(error).strip().splitlines() or [""]
        properties: dict[str, Any] = endpoint.properties
        with suppress(Exception):  # what is wrong with the configuration is what is told here
            properties = self._properties()
        return without_secrets(f"{type(error).__name__}: {lines[0]}", _secrets(properties)) + _fix(error)


def is_away(error: InputError) -> bool:
    """Tell whether a catalog or storage could not be reached, rather than that it refused."""
    cause = error.__context__
    if isinstance(cause, FileNotFoundError | PermissionError | FileExistsError | NotADirectoryError):
        return False
    if type(cause).__name__ == "OperationalError":  # of SQLAlchemy; a file that cannot be opened stays so
        return "sqlite" not in str(cause) or "locked" in str(cause)
    return isinstance(cause, (*_AWAY, OSError))


def _was_made_meanwhile(error: InputError) -> bool:
    """Tell whether somebody else was first to make a catalog's own tables, or a namespace."""
    cause = error.__context__
    return type(cause).__name__ == "IntegrityError" or "already exists" in str(cause)


def check_columns(endpoint: Iceberg, table: Table, schema: Schema) -> None:
    """Raise InputError where a table has other columns than records have."""
    there = {field.name: _column_text(field) for field in table.schema().fields}
    ours = {field.name: _column_text(field) for field in columns_of(schema).fields}
    wrong = [
        f"the table has no {name!r}{suggestion(name, there)}"
        if name not in there
        else f"{name!r} is {there[name]} there"
        for name in ours
        if there.get(name) != ours[name]
    ]
    wrong += [f"records have no {name!r}{suggestion(name, ours)}" for name in there if name not in ours]
    if wrong:
        raise InputError(
            f"cannot write {endpoint}: the table has the columns {_columns_text(there)}, records have {_columns_text(ours)}"
            f": {'; '.join(wrong)}. Select the table's columns before the sink, or write another table"
        )


def columns_of(schema: Schema) -> IcebergSchema:
    """Return the columns of a table that is made for records; objects are JSON text there."""
    return IcebergSchema(
        *(
            NestedField(number, name, _TYPES[kind], required=False)
            for number, (name, kind) in enumerate(schema.fields, 1)
        )
    )


def partitions(endpoint: Iceberg, schema: Schema) -> list[PartitionField]:
    """Return by what a table that is made is cut; raises FlowError where that cannot be."""
    fields = []
    for number, text in enumerate(endpoint.by):
        match = _BY.fullmatch(text)
        if match is None or bool(match["transform"]) != text.endswith(")"):
            raise FlowError(f"{endpoint} cannot be cut by {text!r}; expected a column, or such as 'day(at)'")
        kind = schema.type_of(match["column"], what=f"by of {endpoint}")
        transform = match["transform"] or "identity"
        if match["transform"] and transform not in _TRANSFORMS:
            raise FlowError(
                f"{endpoint} cannot be cut by {text!r}: {transform!r} is none of {listed(_TRANSFORMS)}"
                f"{suggestion(transform, _TRANSFORMS)}"
            )
        if match["transform"] and kind != "time":
            raise FlowError(f"{endpoint} cannot be cut by {text!r}: {match['column']!r} is {kind}, and no time")
        if not match["transform"] and kind in ("any", "float", "float32"):
            raise FlowError(f"{endpoint} cannot be cut by column {text!r}, which is {kind}: too many")
        source = list(schema).index(match["column"]) + 1  # as `columns_of` numbers them
        name = f"{match['column']}_{transform}" if match["transform"] else match["column"]
        fields.append(PartitionField(source, _FIRST_PARTITION + number, parse_transform(transform), name))
    return fields


def _secrets(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the secrets of a catalog, and what is shown instead."""
    secrets: dict[str, str] = {}
    for name, value in properties.items():
        text = str(value)
        secrets |= secrets_in(text) if name in _PLAIN else {**secrets_in(text), text: "…"}
    return secrets


def _column_text(field: NestedField) -> str:
    return f"{'required ' if field.required else ''}{field.field_type}"


def _columns_text(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _file_of(uri: str) -> Path | None:
    """Return the file of a catalog in SQLite; None for other catalogs, and one in memory."""
    scheme, _, path = uri.partition(":///")
    path = path.partition("?")[0]
    is_file = scheme.partition("+")[0] == "sqlite" and path and not path.startswith((":memory:", "file:"))
    return Path(path).absolute() if is_file else None


def _nowhere(endpoint: Iceberg) -> str:
    """Return the error message for a catalog without an address."""
    properties = endpoint.properties
    if properties:
        return f"the catalog's properties have no 'uri': they are {listed(properties)}{suggestion('uri', properties)}"
    there = Config().get_known_catalogs()
    return (
        f"there is no catalog {endpoint.catalog!r}; in ~/.pyiceberg.yaml and the environment are {listed(there)}"
        f"{suggestion(endpoint.catalog, there)}. Or give its properties, such as "
        'catalog={"type": "sql", "uri": "sqlite:///lake/catalog.db", "warehouse": "lake"}'
    )


def _fix(error: Exception) -> str:
    text = f"{type(error).__name__} {error}"
    if "unable to open database file" in text:
        return "; is its folder there, and may this user write it?"
    if "no such table: iceberg_" in text or 'relation "iceberg_' in text:
        return "; the database has none of the tables of a catalog: is the uri right?"
    if isinstance(error, said_by_catalogs.UnauthorizedError | said_by_catalogs.ForbiddenError):
        return "; are the token or credential of the catalog right, and may they do this?"
    if isinstance(error, ImportError):
        return "; the driver of this catalog or storage is not installed"
    return ""
