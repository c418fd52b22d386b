"""JDBC: a table of any database that has a driver for Java, to write to on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from headwater.errors import FlowError
from headwater.flow.endpoints import DeliverySemantics
from headwater.io.urls import shown

_PLAIN = 3  # an option's value of so few characters, such as 10 or yes, hides nothing


class Jdbc:
    """A table that the Spark runner adds records to; it is made if it is not there.

    `url` is Java's, such as `jdbc:postgresql://host/base`, and `options` are those of Spark's JDBC writer, such as
    `{"user": …, "password": …, "driver": …}`; the driver's jar goes into the setting `spark.jars`. The number of the last
    micro-batch is kept in a table `headwater_batches` of the same database.
    """

    delivery: DeliverySemantics = "transactional"  # by Spark's own writer

    def __init__(self, url: str, table: str, options: Mapping[str, str] | None = None) -> None:
        if not url.startswith("jdbc:"):
            raise FlowError(f"a JDBC URL begins with jdbc:, such as jdbc:postgresql://host/base; got {shown(url)!r}")
        self.url, self.table, self.options = url, table, dict(options or {})

    def open(self, given: Any) -> NoReturn:
        """Refuse: there are no drivers but Java's."""
        raise FlowError(f"{self} can be written on Spark only: run the flow with --on spark, or use SQLite")

    def __str__(self) -> str:
        return f"{shown(self.url)} table {self.table}"

    def without_secrets(self, said: str) -> str:
        """Return what a driver said, which may quote the URL, without it and without the values of options."""
        for secret in sorted([self.url, *self.options.values()], key=len, reverse=True):
            if len(secret) > _PLAIN:
                said = said.replace(secret, shown(secret) if secret == self.url else "…")
        return said
