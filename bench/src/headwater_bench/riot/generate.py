"""Endless, seeded streams with the statistics of the benchmark's data, as columns and as SenML messages.

Record i is the same whatever is asked for before it, so that a stream can be read in any pieces, or from the
middle.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from headwater.data.column import Column, Text
from headwater.data.text_format import TextFormat, decimal_texts
from headwater_bench.riot.datasets import Dataset, dataset


class GeneratedStream(Protocol):
    """A generated stream."""

    @property
    def dataset(self) -> Dataset:
        """What its messages hold."""

    @property
    def ids(self) -> Text:
        """The ids of all its sensors."""

    @property
    def decimals(self) -> int:
        """How many a message writes at most."""

    def columns(self, start: int, count: int) -> dict[str, Column]:
        """Return `time_ms` and one column for each field of the messages `start` to `start + count - 1`."""


def stream(name: str, seed: int = 1) -> GeneratedStream:
    """Return a stream of the size that the benchmark's authors used, by the name of its data set."""
    from headwater_bench.riot.city import CityStream
    from headwater_bench.riot.fit import FitStream
    from headwater_bench.riot.grid import GridStream
    from headwater_bench.riot.taxi import TaxiStream

    kinds: dict[str, Any] = {"CITY": CityStream, "TAXI": TaxiStream, "FIT": FitStream, "GRID": GridStream}
    result: GeneratedStream = kinds[dataset(name).name](seed=seed)
    return result


def messages(of: GeneratedStream, start: int, count: int) -> Text:
    """Write records of a stream as SenML messages.

    >>> Text.tolist(messages(stream("GRID"), 0, 1))[0][:42]
    '{"e":[{"u":"string","n":"meterid","sv":"me'
    """
    columns = of.columns(start, count)
    fields = of.dataset.fields
    pieces, before = [], '{"e":['
    for entry in fields:
        unit = entry.unit.replace("/", "\\/")
        if entry.kind == "sv":
            pieces.append(f'{before}{{"u":"{unit}","n":"{entry.name}","sv":"')
            before = '"},'
        else:
            pieces.append(before + '{"v":"')
            before = f'","u":"{unit}","n":"{entry.name}"}},'
    pieces += [before[:-1] + '],"bt":', "}"]
    texts = [_text(columns[entry.name], of.decimals) for entry in fields]
    texts.append(_text(columns["time_ms"], 0))
    return Text(*TextFormat([piece.encode() for piece in pieces], escape=False).format(texts))


def _text(column: Any, decimals: int) -> Text:
    if isinstance(column, Text):
        return column
    return Text(*decimal_texts(column.astype(np.float64), decimals))
