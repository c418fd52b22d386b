"""A source that brings a record now and then, so that each goes through the flow before the next comes."""

from __future__ import annotations

import time
from typing import Any

from headwater import Batch, Schema


class OneByOne:
    """Hands out rows, each in a batch of its own."""

    def __init__(self, rows: list[dict[str, Any]], schema: dict[str, Any]) -> None:
        self.rows, self.schema = rows, Schema.of(schema)

    def open(self, reject: Any, position: Any = None) -> OneByOneReader:
        return OneByOneReader(self)


class OneByOneReader:
    def __init__(self, source: OneByOne) -> None:
        self.source, self.position = source, 0

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        if self.position == len(self.source.rows):
            return None
        time.sleep(0.02)
        self.position += 1
        row = self.source.rows[self.position - 1]
        return Batch.of({name: [value] for name, value in row.items()}, self.source.schema)

    def close(self) -> None:
        pass
