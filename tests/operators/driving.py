"""Drives an operator by hand: batches in, watermarks on, records out."""

from __future__ import annotations

from typing import Any

from headwater.data.batch import END, Batch
from headwater.operators import DEAD, Operator


class Outputs:
    """What came out, by output."""

    def __init__(self) -> None:
        self.rows: dict[int, list[dict[str, Any]]] = {}

    def add(self, result: Any) -> None:
        for port, batch in [(0, result)] if isinstance(result, Batch) else result or []:
            self.rows.setdefault(port, []).extend(batch.rows())

    @property
    def main(self) -> list[dict[str, Any]]:
        return self.rows.get(0, [])

    @property
    def late(self) -> list[dict[str, Any]]:
        return self.rows.get(1, [])

    @property
    def dead(self) -> list[dict[str, Any]]:
        return self.rows.get(DEAD, [])


def drive(operator: Operator, batches: list[Batch], *, end: bool = True, into: Outputs | None = None) -> Outputs:
    """Process batches, moving the watermark on after each; close at the end unless told otherwise."""
    out = into or Outputs()
    for batch in batches:
        out.add(operator.process(batch, 0))
        out.add(operator.advance(batch.watermark))
    if end:
        out.add(operator.advance(END))
    return out
