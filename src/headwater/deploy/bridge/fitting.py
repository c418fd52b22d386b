"""Whether what another site has sent is what the stream has: steps trust columns, and compiled ones read beyond them."""

from __future__ import annotations

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Column, Text, parts
from headwater.data.frames import unpack_frame
from headwater.data.schema import Schema
from headwater.errors import HeadwaterError

_NUMBERS = "biuf"  #: kinds of values that numbers, truth and times may have: a step may make them narrower


def fitting(frame: bytes, schema: Schema) -> Batch:
    """Return the batch of a frame from another site; ValueError says what is wrong with it."""
    try:
        batch = unpack_frame(frame)
    except Exception as error:  # whatever bytes that are no frame make of it
        why = str(error) if isinstance(error, HeadwaterError) else type(error).__name__
        raise ValueError(f"it is no batch ({why})") from None
    if not batch.columns and not batch.length:  # a word about event time
        return batch
    if list(batch.columns) != list(schema):
        raise ValueError(f"it has columns {list(batch.columns)}, and the stream has {list(schema)}")
    for name, kind in schema.fields:
        if not _fits(batch.columns[name], kind, batch.length):
            raise ValueError(f"its column {name!r} is not {batch.length:,} values of type {kind}")
    return batch


def _fits(column: Column, kind: str, length: int) -> bool:
    values, valid = parts(column)
    if valid is not None and len(valid) != length:
        return False
    if isinstance(values, Text) or kind == "text":
        return isinstance(values, Text) and kind == "text" and _are_texts(values, length)
    kinds = "O" if kind == "any" else _NUMBERS
    return values.dtype.kind in kinds and len(values) == length


def _are_texts(texts: Text, length: int) -> bool:
    offsets = texts.offsets
    if len(offsets) != length + 1 or offsets[0] < 0 or offsets[-1] > len(texts.data):
        return False
    return bool(np.all(offsets[1:] >= offsets[:-1]))
