"""City messages taken apart by hand, in two ways: with Spark's own functions, and in Python on Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

NUMBERS = ("temperature", "humidity", "light", "dust", "airquality_raw")
TEXTS = ("source", "longitude", "latitude")
ENTRIES = (*TEXTS, *NUMBERS)

_SENML = "e array<struct<n:string,u:string,v:string,sv:string>>, bt long"
ROW = ", ".join(["msg long, timestamp long", *(f"{n} string" for n in TEXTS), *(f"{n} float" for n in NUMBERS)])


def native(messages: DataFrame) -> DataFrame:
    """Parse with from_json. Entries nearly always come in one order: then they are taken by place, else looked up."""
    parsed = messages.select("msg", F.from_json("message", _SENML).alias("m"))

    def entry(place: int, name: str) -> Column:
        here = F.col("m.e")[place]
        match = F.when(here["n"] == name, here).otherwise(F.filter("m.e", lambda e: e["n"] == name)[0])
        return match["sv" if name == "source" else "v"]

    texts = [entry(k, name).alias(name) for k, name in enumerate(ENTRIES) if name in TEXTS]
    numbers = [entry(k, name).cast("float").alias(name) for k, name in enumerate(ENTRIES) if name in NUMBERS]
    return parsed.select("msg", F.col("m.bt").alias("timestamp"), *texts, *numbers)


class Entry(msgspec.Struct):
    n: str
    v: str | None = None
    sv: str | None = None


class Message(msgspec.Struct):
    e: list[Entry]
    bt: int


def arrow(messages: DataFrame) -> DataFrame:
    """Parse with msgspec's typed decoder, batch by batch."""
    return messages.mapInArrow(_parse, ROW)


def parsed_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    decode = msgspec.json.Decoder(Message).decode
    times, values = [], {name: [] for name in ENTRIES}
    places = [values[name].append for name in ENTRIES]
    for text in batch.column("message").to_pylist():
        message = decode(text)
        times.append(message.bt)
        for entry, name, add in zip(message.e, ENTRIES, places, strict=True):
            if entry.n != name:
                match = {e.n: e for e in message.e}[name]
                add(match.v or match.sv)
            else:
                add(entry.v or entry.sv)
    columns = {"msg": batch.column("msg"), "timestamp": pa.array(times, pa.int64())}
    for name in TEXTS:
        columns[name] = pa.array(values[name], pa.string())
    for name in NUMBERS:
        columns[name] = pa.array(values[name], pa.string()).cast(pa.float32())
    return columns


def _parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict(parsed_columns(batch))
