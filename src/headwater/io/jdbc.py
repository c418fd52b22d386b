"""JDBC: a table of any database that has a driver for Java, to write to on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from headwater.errors import FlowError


class Jdbc:
    """A table that the Spark runner adds records to; it is made if it is not there.

    `url` is Java's, such as `jdbc:postgresql://host/base`, and `options` are those of Spark's JDBC writer, such as
    `{"user": …, "password": …, "driver": …}`; the driver's jar goes into the setting `spark.jars`. The number of the last
    micro-batch is kept in a table `headwater_batches` of the same database.
    """

    def __init__(self, url: str, table: str, options: Mapping[str, str] | None = None) -> None:
        if not url.startswith("jdbc:"):
            raise FlowError(f"a JDBC URL begins with jdbc:, such as jdbc:postgresql://host/base; got {url!r}")
        self.url, self.table, self.options = url, table, dict(options or {})

    def open(self, given: Any) -> NoReturn:
        """Refuse: there are no drivers but Java's."""
        raise FlowError(f"{self} can be written on Spark only: run the flow with --on spark, or use SQLite")

    def __str__(self) -> str:
        return f"{self.url.partition(';')[0].partition('?')[0]} table {self.table}"
