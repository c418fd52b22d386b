"""The terminal: the first records as rows, and a count of the rest."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import ClassVar

from headwater.data.batch import Batch
from headwater.data.schema import NUMERIC, Schema
from headwater.errors import FlowError
from headwater.flow.endpoints import DeliverySemantics, Refused
from headwater.io.fields import texts_of_column
from headwater.io.files import explained
from headwater.io.records import json_lines
from headwater.io.sifting import sift

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f]")  #: what a terminal does something about


@dataclass(frozen=True)
class Console:
    """Prints the first `limit` records as aligned rows, or as JSON, and says at the end how many more came.

    >>> writer = Console(limit=1).open(Schema.of({"id": str, "x": float}))
    >>> refused = writer.write(Batch.of({"id": ["a", "b"], "x": [1.5, 2.0]}, Schema.of({"id": str, "x": float})))
    id        x
    a       1.5
    >>> writer.close()
    … and 1 more
    """

    delivery: ClassVar[DeliverySemantics] = "neither"

    limit: int = 20
    json: bool = False

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise FlowError(f"limit is the number of records to print, 0 or more; got {self.limit}")

    def open(self, schema: Schema) -> ConsoleWriter:
        """Start printing."""
        return ConsoleWriter(self, schema)

    def __str__(self) -> str:
        return "console"


class ConsoleWriter:
    """An open terminal."""

    def __init__(self, console: Console, schema: Schema) -> None:
        self._console, self._schema = console, schema
        self._printed = self._more = 0
        self._widths: list[int] = []

    def write(self, batch: Batch) -> Refused:
        """Print the records that are among the first, and count the others."""
        first = batch.slice(0, min(len(batch), self._console.limit - self._printed))
        if self._console.json:
            encoded, _, refusals = sift(first, lambda batch: json_lines(batch, self._schema))
            lines = [line.decode() for line in encoded]
        else:
            rows, _, refusals = sift(first, self._values)
            lines = self._rows(rows)
        self._printed += len(first) - len(refusals)
        self._more += len(batch) - len(first)
        if lines:
            try:
                sys.stdout.write("".join(f"{line}\n" for line in lines))
                sys.stdout.flush()
            except OSError as error:
                raise explained(error, "-", "write") from error
        return refusals

    def close(self) -> None:
        """Say how many records were not shown."""
        if self._more:
            print(f"… and {self._more:,} more")

    def _values(self, batch: Batch) -> list[list[str]]:
        columns = [texts_of_column(batch[name], kind) for name, kind in self._schema.fields]
        return [["" if value is None else _plain(value) for value in row] for row in zip(*columns, strict=True)]

    def _rows(self, rows: list[list[str]]) -> list[str]:
        if rows and not self._widths:  # the first rows set how wide the columns are
            rows.insert(0, list(self._schema))
            self._widths = [max(5, *map(len, column)) for column in zip(*rows, strict=True)]
        return [self._row(row) for row in rows]

    def _row(self, row: list[str]) -> str:
        cells = [
            text.rjust(width) if kind in NUMERIC else text.ljust(width)
            for text, width, (_, kind) in zip(row, self._widths, self._schema.fields, strict=True)
        ]
        return " ".join(cells).rstrip()


def _plain(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = text.replace("\n", "⏎")  # a row stays a row
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
